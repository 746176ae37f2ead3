"""H2O, heavy hitters: the attention that an entry has received so far (arXiv:2306.14048)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.presses.attention import attention_sum
from fastinfer.presses.base import ALL_QUERIES, LayerView, Press


@dataclass(frozen=True, kw_only=True)
class Observed(Press):
    """Keeps the entries that received the most attention from the queries that could see them.

    H2O adds the attention up; the mean over the queries that could see an entry, as kvpress takes
    it, does not favour old entries for their age alone. H2O remembers sums from the first token on;
    a press keeps no state, so queries from before the last compression no longer count. Query heads
    that share a key are averaged. H2O's window of recent tokens is half of what is kept; here it is
    the recent window that no press drops.
    """

    name = "observed"
    summary = "what has received the most attention (heavy hitters)"
    num_queries: int = ALL_QUERIES

    def score(self, view: LayerView) -> Tensor:
        """Mean attention received, averaged over the group."""
        total = attention_sum(view).mean(dim=1)
        assert view.queries is not None
        length, window = total.shape[-1], view.queries.shape[1]
        observers = torch.arange(length, 0, -1, device=total.device).clamp_max(window)
        return total / observers
