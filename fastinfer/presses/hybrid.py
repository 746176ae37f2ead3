"""Hybrid: sinks, a recent window, and the best of what lies between by key norm.

From the student project MooNknightO2/CS3602_FINAL_MIX on GitHub; no paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fastinfer.presses.attention import with_newest
from fastinfer.presses.base import LayerView, Press
from fastinfer.presses.norms import key_norms

# Which keys of the middle are kept: 1 the largest norms, as in the project that this press is from;
# -1 the smallest, as in `knorm`. Decided by measurement: docs/presses.md.
DIRECTION = 1.0


@dataclass(frozen=True, kw_only=True)
class Hybrid(Press):
    """Keeps the newest `recent_share` of the entries, and from the others one set for all heads.

    There, the recent window was 40% of the entries *kept*; a score does not know how many that will
    be, so here it is 20% of the entries *there are*, which is the same at a ratio of 0.5.
    """

    name = "hybrid"
    summary = "sinks, a recent window and, between them, keys chosen by their norm"
    num_queries: int = 0
    recent_share: float = 0.2
    direction: float = DIRECTION

    def score(self, view: LayerView) -> Tensor:
        """The norm of the key averaged over heads, in `direction`; the recent window outranks
        all.
        """
        kv_heads, length, _ = view.keys.shape
        num_recent = int(length * self.recent_share)
        norms = key_norms(view.keys).mean(dim=0)
        middle = self.direction * norms[: length - num_recent]
        return with_newest(middle.expand(kv_heads, -1), num_recent)
