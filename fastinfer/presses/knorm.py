"""Small key norms: a simple and effective L2 norm strategy (arXiv:2406.11430)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fastinfer.presses.base import LayerView, Press
from fastinfer.presses.norms import key_norms


@dataclass(frozen=True, kw_only=True)
class Knorm(Press):
    """Keeps the keys of smallest norm: the paper finds that they receive the most attention.

    The paper leaves the first two layers whole; here, as in kvpress, every layer is compressed.
    """

    name = "knorm"
    summary = "the keys of smallest norm"
    num_queries: int = 0

    def score(self, view: LayerView) -> Tensor:
        """Minus the L2 norm of the key."""
        return -key_norms(view.keys)
