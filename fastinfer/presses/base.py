"""What a press sees, what it answers, and how an answer becomes the entries that are kept.

A press gives every entry of one layer a score; whoever compresses decides how many entries stay.
Presses are pure and stateless: the same view gives the same scores, and nothing outlives a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# `num_queries` of a press that wants the query of every token since the last compression: at
# prefill those of the whole prompt. Far above any sequence, so it needs no case of its own.
ALL_QUERIES = 2**31

# Turns heads [..., n, head_dim] by positions that broadcast to [..., n]; a negative position turns
# back. Pure: returns a new tensor.
Turn = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class LayerView:
    """One layer's cache at the moment of compression: committed entries only, oldest first.

    The queries are those of the newest entries: query j of w is the one of entry length - w + j, so
    it may look at entries up to that one. There are at most as many as tokens were committed since
    the last compression (then w is less than the press asked for).
    """

    keys: Tensor  # [kv_heads, length, head_dim], as cached: after rotation
    values: Tensor  # [kv_heads, length, head_dim]
    positions: Tensor  # [kv_heads, length] int64: which token of the sequence each entry is
    queries: Tensor | None = None  # [heads, w, head_dim], after rotation; None where not asked for
    next_position: int  # what the next token will be rotated to; query j: next_position - w + j
    turn: Turn  # the model's own rotation, without any factor on its length
    scale: float  # of the attention scores: 1 / sqrt(head_dim)
    layer: int = 0
    num_layers: int = 1


class Press(Protocol):
    """Which entries are worth keeping. Subclass it; `PRESSES` in this package names them all."""

    name: str
    summary: str  # one sentence for help texts
    num_queries: int  # how many queries `score` needs: 0 for none, a window, or ALL_QUERIES

    def score(self, view: LayerView) -> Tensor:
        """Scores [kv_heads, length], float32, finite or -inf; higher is kept sooner."""
        ...

    def layer_budgets(self, n_keep: int, lengths: Sequence[int], least: int) -> tuple[int, ...]:
        """How many entries each layer keeps, where `n_keep` is the mean and `lengths` what it has.

        They sum to n_keep * num_layers, and each lies between `least` (sinks and recent window, or
        n_keep where that is less) and the layer's length. `n_keep` is at most every length's mean.
        """
        return (n_keep,) * len(lengths)


def keep_best(
    scores: Tensor,  # [kv_heads, length]
    n_keep: int,
    num_sinks: int = 0,
    num_recent: int = 0,
) -> Tensor:  # [kv_heads, n_keep] int64
    """Indices of the `n_keep` best entries of each head, ascending.

    The first `num_sinks` and the last `num_recent` are always among them; of equal scores the
    earlier entry stays. Keeps all where `n_keep` is the length or more.
    """
    heads, length = scores.shape
    everything = torch.arange(length, device=scores.device).expand(heads, length)
    if n_keep >= length:
        return everything
    wanted = n_keep - num_sinks - num_recent
    assert wanted >= 0, "sinks and recent window fit in what is kept"
    middle = scores[:, num_sinks : length - num_recent]
    best = middle.sort(dim=-1, descending=True, stable=True).indices[:, :wanted] + num_sinks
    protected = (everything[:, :num_sinks], everything[:, length - num_recent :])
    return torch.cat((protected[0], best, protected[1]), -1).sort(-1).values
