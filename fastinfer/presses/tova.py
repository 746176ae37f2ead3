"""TOVA: what the newest token attends to (arXiv:2401.06104)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fastinfer.presses.attention import attention_sum
from fastinfer.presses.base import LayerView, Press


@dataclass(frozen=True, kw_only=True)
class Tova(Press):
    """Keeps what the last token attends to, on average over all heads: one set for all of them.

    The paper drops one entry per generated token; here many go at once, at intervals. kvpress
    always keeps the last entry; here it is part of the recent window that no press drops.
    """

    name = "tova"
    summary = "what the last token attends to, the same for all heads"
    num_queries: int = 1

    def score(self, view: LayerView) -> Tensor:
        """Attention of the last query, averaged over heads."""
        return attention_sum(view).mean(dim=(0, 1)).expand(len(view.keys), -1)
