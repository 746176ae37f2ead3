"""Keys and values of one request, in one pre-allocated tensor that grows by chunks.

`length` is how many tokens of the sequence are covered: the next token's position, and the number
of entries in each layer. A rollback moves it back and touches no data: what lies past the cursor is
never read. The cache that entries can be dropped from is another (pressed_cache.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.models.huge_pages import use_huge_pages

# Capacity comes in multiples of this many entries, so memory follows the request.
CHUNK = 256


@dataclass(frozen=True, slots=True)
class CacheViews:
    """Per layer: where the new entries go, and what attention reads once they are there."""

    new: tuple[Tensor, ...]  # [1, 2 * kv_heads, n, head_dim]: keys of all heads, then values
    keys: tuple[Tensor, ...]  # [1, kv_heads, entries + n, head_dim]
    values: tuple[Tensor, ...]  # [1, kv_heads, entries + n, head_dim]


class StaticKVCache:
    """The cache of our own decoder. Keys are held after rotation."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.length = 0
        self._entry_bytes = 2 * num_layers * num_kv_heads * head_dim * dtype.itemsize
        # [layers, keys and values, kv_heads, capacity, head_dim]; another tensor after growing.
        with torch.inference_mode(False):  # so that anyone may write into it later
            self.storage = torch.empty(
                num_layers, 2, num_kv_heads, 0, head_dim, dtype=dtype, device=device
            )

    def rollback(self, length: int) -> None:
        """Forget the tokens from `length` on."""
        assert 0 <= length <= self.length, "a rollback never moves forward"
        self.length = length

    @property
    def position(self) -> int:
        """What the next token is rotated to."""
        return self.length

    def num_entries(self) -> int:
        """Entries held per layer."""
        return self.length

    def num_bytes(self) -> int:
        """Bytes of the entries held, all layers; spare capacity is not counted."""
        return self._entry_bytes * self.length

    def allocated_bytes(self) -> int:
        """Bytes in memory, spare capacity included."""
        return self.storage.nbytes

    @property
    def capacity(self) -> int:
        """Entries per layer that fit without growing."""
        return self.storage.shape[3]

    def reserve(self, entries: int) -> None:
        """Make room for so many entries in all; copies the live ones if it must grow."""
        if entries <= self.capacity:
            return
        layers, two, heads, _, dim = self.storage.shape
        with torch.inference_mode(False):
            grown = self._allocate((layers, two, heads, self._room_for(entries), dim))
            if grown.device.type == "cpu":
                use_huge_pages(grown.data_ptr(), grown.nbytes, collapse=False)
            live = slice(0, self.length)
            grown[:, :, :, live] = self.storage[:, :, :, live]
        self.storage = grown

    def _room_for(self, entries: int) -> int:
        """The capacity to grow to."""
        # A quarter more than is needed: a long request copies its entries only a few times, and
        # seldom right behind its prompt.
        wanted = entries + entries // 4
        return -(-wanted // CHUNK) * CHUNK

    def _allocate(self, shape: tuple[int, ...]) -> Tensor:
        return self.storage.new_empty(shape)

    def views(self, count: int) -> CacheViews:
        """Room for `count` new tokens. The cursor moves only with `advance`."""
        end = self.length + count
        self.reserve(end)
        flat = self.storage.flatten(1, 2).unsqueeze(1)
        live = self.storage.narrow(3, 0, end)
        return CacheViews(
            new=flat.narrow(3, self.length, count).unbind(0),
            keys=live.narrow(1, 0, 1).unbind(0),
            values=live.narrow(1, 1, 1).unbind(0),
        )

    def advance(self, count: int) -> None:
        """Count `count` tokens as covered: their entries are written in every layer."""
        self.length += count
