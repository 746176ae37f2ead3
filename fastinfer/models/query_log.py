"""Queries that a press will ask for, recorded while the forward makes them.

Only the newest are kept, in a ring, and only those since the last compression: older ones would
belong to entries that may be gone. A rollback moves the cursor, as in the cache itself.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fastinfer.config import MAX_GAMMA
from fastinfer.models.kv_cache import CHUNK

# Queries of a block that may yet be rolled back lie in the ring beside those that are asked for.
SLACK = 2 * MAX_GAMMA


class QueryLog:
    """The queries of one request, after rotation. Records nothing until `record` asks for some."""

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._empty = torch.empty(num_layers, num_heads, 0, head_dim, dtype=dtype, device=device)
        self._buffer = self._empty  # [layers, heads, capacity, head_dim]
        self._wanted = 0
        self._count = 0  # tokens since the last compression, up to the cursor
        self._written = 0  # the most that the cursor has been

    def record(self, num_queries: int) -> None:
        """From now on keep so many; 0 stops it and frees what there is."""
        self._wanted = num_queries
        self.clear()

    def clear(self) -> None:
        """Forget all, and give the memory back."""
        self._buffer = self._empty
        self._count = self._written = 0

    def num_bytes(self) -> int:
        """Bytes in memory."""
        return self._buffer.nbytes

    def advance(self, count: int) -> None:
        """Move the cursor, back for a negative count."""
        self._count += count
        self._written = max(self._written, self._count)

    def writers(self, count: int) -> list[Callable[[Tensor], object]] | None:
        """Per layer, what takes the queries [1, heads, count, head_dim] of the next tokens.

        None where nothing is recorded. The cursor moves only with `advance`.
        """
        if not self._wanted:
            return None
        ring = self._wanted + SLACK
        end = self._count + count
        self._reserve(min(end, ring))
        newest = min(count, ring)
        places = torch.arange(end - newest, end, device=self._buffer.device) % ring

        def writer(layer: Tensor) -> Callable[[Tensor], object]:
            return lambda queries: layer.index_copy_(1, places, queries[0, :, count - newest :])

        return [writer(layer) for layer in self._buffer]

    def _reserve(self, capacity: int) -> None:
        held = self._buffer.shape[2]
        if capacity > held:
            room = -(-max(capacity, held * 5 // 4) // CHUNK) * CHUNK
            layers, heads, _, dim = self._buffer.shape
            with torch.inference_mode(False):
                grown = self._buffer.new_empty(layers, heads, room, dim)
                grown[:, :, :held] = self._buffer
            self._buffer = grown

    def last(self, layer: int) -> Tensor | None:
        """The newest queries [heads, w, head_dim], at most as many as wanted; None for none."""
        if not self._wanted:
            return None
        newest = min(self._wanted, self._count)
        ring = self._wanted + SLACK
        assert self._written - (self._count - newest) <= ring, "rolled back beyond the ring"
        places = torch.arange(self._count - newest, self._count, device=self._buffer.device) % ring
        return self._buffer[layer].index_select(1, places)
