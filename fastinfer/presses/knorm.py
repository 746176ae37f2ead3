"""Small key norms: a simple and effective L2 norm strategy (arXiv:2406.11430)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.presses.base import LayerView, Press


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
        norms: Tensor = torch.linalg.vector_norm(view.keys.float(), dim=-1)
        return -norms
