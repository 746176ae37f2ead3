"""What a session needs from weights: a forward over a cache that rolls back by moving a cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from fastinfer.presses.base import LayerView, Press


class KVCache(Protocol):
    """Keys and values of one request in every layer; a position is a place in the sequence."""

    @property
    def length(self) -> int:
        """Tokens covered: the cursor."""
        ...

    def rollback(self, length: int) -> None:
        """Move the cursor back to `length`, which must not be above it."""
        ...

    def num_entries(self) -> int:
        """Entries held per layer."""
        ...

    def num_bytes(self) -> int:
        """Bytes of the entries held, all layers."""
        ...

    def allocated_bytes(self) -> int:
        """Bytes kept in memory for them, spare room included."""
        ...

    @property
    def position(self) -> int:
        """The position that the next token gets: `length`, unless places became free again."""
        ...


class PressableCache(KVCache, Protocol):
    """A cache that entries can be dropped from; then it holds fewer than it covers tokens."""

    def record_queries(self, num_queries: int) -> None:
        """Keep the queries of so many of the newest tokens for a press; 0 for none."""
        ...

    def layer_lengths(self) -> tuple[int, ...]:
        """Entries of each layer."""
        ...

    def layer_views(self) -> Iterator[LayerView]:
        """What a press sees of each layer, in order."""
        ...

    def keep(self, kept: Sequence[Tensor]) -> None:
        """Keep these entries of each layer, [kv_heads, n] ascending, and free all others.

        No rollback may go below the present `length` from then on.
        """
        ...


class Decoder(Protocol):
    """The weights of one model. Shared by all requests, changed by none."""

    name: str
    backend: str  # whose forward it is: "fastinfer" or "transformers"
    vocab_size: int  # rows of the output matrix, padding included
    context: int  # longest sequence
    prefill_block: int  # tokens of a prompt that it reads at once
    dtype: torch.dtype
    device: torch.device

    def new_cache(self) -> KVCache:
        """An empty cache for one request."""
        ...

    def check_press(self, press: Press, in_cache: bool) -> None:
        """Raises `ConfigError` where a press can't work on this model, naming which can."""
        ...

    def new_pressed_cache(self, in_cache: bool) -> PressableCache:
        """An empty cache that a press may work on; `in_cache` says what positions mean."""
        ...

    def forward(self, token_ids: Tensor, cache: KVCache, num_logits: int) -> Tensor:
        """Append `token_ids` [n] (int64, on the model's device) to the cache.

        Returns logits [num_logits, vocab_size] in float32 after each of the last `num_logits` of
        them.
        """
        ...
