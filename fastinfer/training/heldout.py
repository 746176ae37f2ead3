"""Loss on unseen text by position in the window: what a longer context brings.

Windows overlap, and a stretch of text counts only where some window shows it at every depth. So two
positions differ in how much context there is and in nothing else: in separate windows the text
itself differs more than the context does.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn import functional

from fastinfer.training.recipe import CONTEXT
from fastinfer.training.run import Model, Stream, logits_of

STRIDE = 256
DEPTHS = CONTEXT // STRIDE
REGIONS = 4  # of the stream, evenly spread
MIN_TOKENS = 2 * CONTEXT - STRIDE + 1  # for one stretch at every depth
POSITION_EDGES = (0, 256, 512, 1024, 1536, CONTEXT)


@torch.no_grad()
def heldout_losses(model: Model, stream: Stream, stretches: int, device: str) -> Tensor:
    """Mean loss at each position of a window, in nats per token: [CONTEXT].

    Over at most so many stretches of STRIDE tokens, each seen behind 0, 256, ... tokens of context.
    `stream` holds at least MIN_TOKENS.
    """
    model.eval()
    regions = REGIONS if len(stream) >= 2 * REGIONS * MIN_TOKENS else 1
    fitting = (len(stream) // regions - 1 - CONTEXT) // STRIDE + 1
    num_windows = min(stretches // regions + DEPTHS - 1, fitting)
    total = torch.zeros(DEPTHS, STRIDE)
    for region in range(regions):
        begin = region * (len(stream) // regions)
        for number in range(num_windows):
            start = begin + number * STRIDE
            window = torch.from_numpy(stream[start : start + CONTEXT + 1].astype("int64"))
            window = window.to(device)
            logits = logits_of(model, window[None, :-1])
            losses = functional.cross_entropy(logits[0], window[1:], reduction="none").cpu()
            for depth, loss in enumerate(losses.view(DEPTHS, STRIDE)):
                if DEPTHS - 1 <= number + depth < num_windows:
                    total[depth] += loss
    counted = regions * (num_windows - DEPTHS + 1)
    return total.flatten() / counted


def by_position(losses: Tensor) -> dict[str, float]:
    """Mean loss between consecutive edges of `POSITION_EDGES`, keyed `"from-to"`."""
    pairs = itertools.pairwise(POSITION_EDGES)
    return {f"{a}-{b}": round(losses[a:b].mean().item(), 4) for a, b in pairs}
