"""Log-probabilities of the target's own law, for those who ask: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class RowLogprobs:
    """One token's log-probability, and the likeliest tokens at its place, likeliest first."""

    own: float
    top: tuple[tuple[int, float], ...]  # (id, log-probability)


def logprobs_of(
    logits: Tensor,  # [n, vocab], before any filter
    token_ids: Sequence[int],  # the tokens that came, of the first rows
    num_top: int,
) -> list[RowLogprobs]:
    """The natural logarithms of softmax(logits), for each token."""
    rows = logits[: len(token_ids)].float().log_softmax(-1)
    ids = torch.tensor(token_ids, dtype=torch.long, device=rows.device)
    own = rows.gather(-1, ids[:, None])[:, 0].tolist()
    top = rows.topk(min(num_top, rows.shape[-1]), -1)
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [
        RowLogprobs(own=value, top=tuple(zip(at, values, strict=True)))
        for value, (at, values) in zip(own, pairs, strict=True)
    ]
