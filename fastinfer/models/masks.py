"""Who may look where: additive attention masks of blocks behind a cache.

A round verifies a short block each time behind a few more entries: on a CPU the mask of a block
size is made once, with room to the left, and each round takes as much of it as it needs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# Masks of longer blocks, as of a prompt, are not kept.
LONGEST_KEPT = 64
CHUNK = 1024


class Masks:
    """Masks [count, entries + count] of one model: 0 where a token may look, -inf where not."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype = dtype
        self._device = device
        self._kept: dict[int, Tensor] = {}  # by block size

    def of(self, entries: int, count: int, window: int | None) -> Tensor | None:
        """The mask of `count` tokens behind so many entries; None where all may look everywhere.

        A token looks at itself and back, no further than `window` tokens, itself counted. The mask
        is not to be changed.
        """
        if window is not None and entries + count > window:
            return self._sliding(entries, count, window)
        return None if count == 1 else self._causal(entries, count)

    def _causal(self, entries: int, count: int) -> Tensor:
        # A GPU's kernels want masks at aligned addresses, where a cut one need not lie.
        if count > LONGEST_KEPT or self._device.type != "cpu":
            return self._made(entries, count)
        total = entries + count
        kept = self._kept.get(count)
        if kept is None or kept.shape[1] < total:
            kept = self._kept[count] = self._made(-(-total // CHUNK) * CHUNK - count, count)
        return kept.narrow(1, kept.shape[1] - total, total)

    def _sliding(self, entries: int, count: int, window: int) -> Tensor:
        # Entry j was token j: windows are not combined with dropped entries.
        steps = torch.arange(entries + count, device=self._device)
        far = steps[entries:, None] - steps >= window
        return self._made(entries, count).masked_fill_(far, -torch.inf)

    def _made(self, entries: int, count: int) -> Tensor:
        future = torch.full((count, count), -torch.inf, dtype=self._dtype, device=self._device)
        return F.pad(future.triu_(1), (entries, 0))
