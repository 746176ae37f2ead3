"""A cache that entries can be dropped from: layers and heads may keep different ones.

Two lengths: `length` counts tokens of the sequence, `num_entries()` what is held for them. Dropping
copies what stays into buffers of a new size, so memory shrinks with it. Kept entries stay in order
and the newest come last: a rollback remains a cursor move, down to where the last drop was made.

Positions are one of two, never mixed. *Original*: a kept key stays as it was rotated, and the next
token is rotated to its place in the sequence. *In the cache* (StreamingLLM, arXiv:2309.17453): kept
keys are turned to their new places in the cache, and the next token comes after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fastinfer.models.huge_pages import use_huge_pages
from fastinfer.models.kv_cache import CHUNK, CacheViews
from fastinfer.models.query_log import QueryLog
from fastinfer.models.rotary import RotaryTable
from fastinfer.presses.base import LayerView


class PressedKVCache:
    """The cache of our own decoder where a press is at work. Keys are held after rotation."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        rotary: RotaryTable,
        in_cache: bool,
    ) -> None:
        self.length = 0
        self.floor = 0  # a rollback goes no further: the entries below are not what was written
        self.in_cache = in_cache
        self._rotary = rotary
        self._counts = [0] * num_layers
        with torch.inference_mode(False):
            empty = torch.empty(2, num_kv_heads, 0, head_dim, dtype=dtype, device=device)
            # Which tokens the last drop left, per layer [kv_heads, kept]; newer ones follow it.
            self._kept = [
                torch.empty(num_kv_heads, 0, dtype=torch.long, device=device)
            ] * num_layers
        self._storage = [empty] * num_layers  # per layer [2, kv_heads, capacity, head_dim]
        # Asked for in every round, so kept at hand.
        self._entry_bytes = 2 * num_kv_heads * head_dim * dtype.itemsize  # in one layer
        self._storage_bytes = 0
        self.queries = QueryLog(num_layers, num_heads, head_dim, dtype, device)

    @property
    def position(self) -> int:
        """What the next token is rotated to."""
        return self._counts[0] if self.in_cache else self.length

    def rollback(self, length: int) -> None:
        """Forget the tokens from `length` on. What was committed at the last drop stays."""
        dropped = self.length - length
        assert dropped >= 0, "a rollback never moves forward"
        assert length >= self.floor, "a rollback never goes below what was committed"
        self._advance(-dropped)

    def num_entries(self) -> int:
        """Entries held per layer; where layers differ, their mean."""
        return sum(self._counts) // len(self._counts)

    def num_bytes(self) -> int:
        """Bytes of the entries held, all layers."""
        return self._entry_bytes * sum(self._counts)

    def allocated_bytes(self) -> int:
        """Bytes in memory: entries, room for more, and the queries that a press will ask for."""
        return self._storage_bytes + self.queries.num_bytes()

    def views(self, count: int) -> CacheViews:
        """Room for `count` new tokens. The cursor moves only with `advance`."""
        new, keys, values = [], [], []
        for layer, entries in enumerate(self._counts):
            storage = self._reserve(layer, entries + count)
            new.append(storage.flatten(0, 1).unsqueeze(0).narrow(2, entries, count))
            live = storage.narrow(2, 0, entries + count)
            keys.append(live[:1])
            values.append(live[1:])
        return CacheViews(new=tuple(new), keys=tuple(keys), values=tuple(values))

    def advance(self, count: int) -> None:
        """Count `count` tokens as covered: their entries are written in every layer."""
        self._advance(count)

    def _advance(self, count: int) -> None:
        self.length += count
        self._counts = [entries + count for entries in self._counts]
        self.queries.advance(count)

    def _reserve(self, layer: int, entries: int) -> Tensor:
        storage = self._storage[layer]
        if entries > storage.shape[2]:
            # A quarter more than was there: a long request copies its entries only a few times.
            grown = self._new(max(entries, storage.shape[2] * 5 // 4))
            live = slice(0, self._counts[layer])
            grown[:, :, live] = storage[:, :, live]
            self._replace(layer, grown)
            storage = grown
        return storage

    def _replace(self, layer: int, storage: Tensor) -> None:
        self._storage_bytes += storage.nbytes - self._storage[layer].nbytes
        self._storage[layer] = storage

    def _new(self, entries: int) -> Tensor:
        """A buffer of whole chunks."""
        two, heads, _, dim = self._storage[0].shape
        with torch.inference_mode(False):
            made = self._storage[0].new_empty(two, heads, -(-entries // CHUNK) * CHUNK, dim)
        if made.device.type == "cpu":
            use_huge_pages(made.data_ptr(), made.nbytes, collapse=False)
        return made

    def record_queries(self, num_queries: int) -> None:
        """Keep the queries of so many of the newest tokens for a press; 0 for none."""
        self.queries.record(num_queries)

    def layer_lengths(self) -> tuple[int, ...]:
        """Entries of each layer."""
        return tuple(self._counts)

    def layer_views(self) -> Iterator[LayerView]:
        """What a press sees of each layer, in order. Caller's duty: all entries are committed."""
        for layer, entries in enumerate(self._counts):
            keys, values = self._storage[layer].narrow(2, 0, entries).unbind(0)
            yield LayerView(
                keys=keys,
                values=values,
                positions=self.tokens(layer),
                queries=self.queries.last(layer),
                next_position=self.position,
                turn=self._rotary.turned,
                scale=keys.shape[-1] ** -0.5,
                layer=layer,
                num_layers=len(self._counts),
            )

    def tokens(self, layer: int) -> Tensor:
        """Which token of the sequence each entry is: [kv_heads, entries] int64."""
        kept = self._kept[layer]
        newer = torch.arange(self.floor, self.length, device=kept.device)
        return torch.cat((kept, newer.expand(len(kept), -1)), -1)

    @torch.inference_mode()
    def keep(self, kept: Sequence[Tensor]) -> None:
        """Keep these entries and free the others: per layer [kv_heads, n], ascending.

        Every token covered so far must be committed, since nothing before it can be rolled back.
        """
        for layer, indices in enumerate(kept):
            tokens = self.tokens(layer).gather(-1, indices)
            count = indices.shape[-1]
            smaller = self._new(count + 1)
            old = self._storage[layer]
            # As rows of one table: these are copied whole, `gather` would go number by number.
            first = torch.arange(0, old.shape[1] * old.shape[2], old.shape[2], device=old.device)
            rows = old.flatten(1, 2).index_select(1, (indices + first[:, None]).flatten())
            smaller[:, :, :count] = rows.view(2, *indices.shape, -1)
            if self.in_cache:
                places = torch.arange(count, device=indices.device)
                keys = smaller[0, :, :count]
                keys.copy_(self._rotary.moved(keys, indices, places))
            self._replace(layer, smaller)
            self._counts[layer], self._kept[layer] = count, tokens
        assert not self.in_cache or len(set(self._counts)) == 1, "one place for the next token"
        self.floor = self.length
        self.queries.clear()
