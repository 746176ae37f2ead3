"""StreamingLLM: attention sinks and the most recent tokens (arXiv:2309.17453)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.presses.base import LayerView, Press


@dataclass(frozen=True, kw_only=True)
class Streaming(Press):
    """Keeps the newest entries; the sinks are those that `keep_best` protects for every press.

    The paper counts positions in the cache, not in the text: that is the position policy
    `in_cache`. Under `original` kept entries stay where they were, as in kvpress.
    """

    name = "streaming"
    summary = "the first tokens (sinks) and the most recent ones"
    num_queries: int = 0

    def score(self, view: LayerView) -> Tensor:
        """The later the higher."""
        kv_heads, length, _ = view.keys.shape
        order = torch.arange(length, dtype=torch.float32, device=view.keys.device)
        return order.expand(kv_heads, length)
