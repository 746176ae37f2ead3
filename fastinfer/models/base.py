"""What a session needs from weights: a forward over a cache that rolls back by moving a cursor."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


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


class Decoder(Protocol):
    """The weights of one model. Shared by all requests, changed by none."""

    name: str
    backend: str  # whose forward it is: "fastinfer" or "transformers"
    vocab_size: int  # rows of the output matrix, padding included
    context: int  # longest sequence
    dtype: torch.dtype
    device: torch.device

    def new_cache(self) -> KVCache:
        """An empty cache for one request."""
        ...

    def forward(self, token_ids: Tensor, cache: KVCache, num_logits: int) -> Tensor:
        """Append `token_ids` [n] (int64, on the model's device) to the cache.

        Returns logits [num_logits, vocab_size] in float32 after each of the last `num_logits` of
        them.
        """
        ...
