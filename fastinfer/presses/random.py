"""Random entries: the control that every other press must beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.presses.base import LayerView, Press

_MASK = 0xFFFFFFFF


@dataclass(frozen=True, kw_only=True)
class Random(Press):
    """A number for each entry, from a hash of `seed`, layer, head and position in the text.

    The same entry has the same number whenever it is asked for, so what survives many compressions
    is a fair sample of the whole text, not mostly its end.
    """

    name = "random"
    summary = "a fixed random choice, as a control"
    num_queries: int = 0
    seed: int = 0

    def score(self, view: LayerView) -> Tensor:
        """Uniform in [0, 1)."""
        heads = torch.arange(len(view.positions), device=view.positions.device).unsqueeze(1)
        bits = _mixed(torch.full_like(heads, self.seed & _MASK))
        for part in (view.layer, heads, view.positions):
            bits = _mixed((bits + part) & _MASK)
        return (bits >> 8).float() / 2**24  # float32 holds 24 bits


def _mixed(bits: Tensor) -> Tensor:
    """Each 32-bit number to another, so that near ones become unlike (the end of MurmurHash3)."""
    bits = bits ^ (bits >> 16)
    bits = bits * 0x85EBCA6B & _MASK
    bits = bits ^ (bits >> 13)
    bits = bits * 0xC2B2AE35 & _MASK
    return bits ^ (bits >> 16)
