"""PyramidKV: SnapKV's score, with more entries in the lower layers (arXiv:2406.02069)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastinfer.presses.snapkv import SnapKV


@dataclass(frozen=True, kw_only=True)
class Pyramid(SnapKV):
    """Budgets fall by equal steps from the first layer to the last.

    Above what every layer keeps anyway (the observation window, sinks and recent entries) the last
    layer has 1 / `beta` of the mean, the first one as much more as the last one has less. Where a
    layer holds fewer entries than that, all budgets shift by the same amount so that the sum stays:
    the paper has no such bound, and kvpress falls back to equal budgets.
    """

    name = "pyramid"
    summary = "as snapkv, with more entries in the lower layers than in the upper ones"
    beta: float = 20.0

    def layer_budgets(self, n_keep: int, lengths: Sequence[int], least: int) -> tuple[int, ...]:
        """See `Press.layer_budgets`."""
        floor = max(least, min(self.num_queries, n_keep))
        low = floor + (n_keep - floor) / self.beta
        steps = max(len(lengths) - 1, 1)
        slope = 2 * (n_keep - low) / steps if len(lengths) > 1 else 0.0
        middle = (len(lengths) - 1) / 2
        wanted = [n_keep + slope * (middle - layer) for layer in range(len(lengths))]
        return _shifted(wanted, [least] * len(lengths), lengths, n_keep * len(lengths))


def _shifted(
    wanted: Sequence[float], least: Sequence[int], most: Sequence[int], total: int
) -> tuple[int, ...]:
    """Whole numbers that sum to `total`: `wanted` plus one shift for all, kept within bounds."""

    def at(shift: float) -> list[float]:
        return [
            min(max(value + shift, low), high)
            for value, low, high in zip(wanted, least, most, strict=True)
        ]

    reach = float(max(most) + max(wanted))
    below, above = -reach, reach
    for _ in range(100):  # halves an interval of any size to nothing
        shift = (below + above) / 2
        below, above = (shift, above) if sum(at(shift)) < total else (below, shift)
    exact = at(above)
    whole = [int(value) for value in exact]
    by_rest = sorted(range(len(exact)), key=lambda layer: whole[layer] - exact[layer])
    for layer in by_rest[: total - sum(whole)]:  # a bound is whole, so none is passed
        whole[layer] += 1
    return tuple(whole)
