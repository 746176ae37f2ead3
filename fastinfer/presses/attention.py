"""Parts that presses share: what recent queries look at, and marking the newest entries."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fastinfer.presses.base import LayerView

# Queries are taken this many at a time, so that a long prompt needs no square of attention.
BLOCK = 64


def attention_blocks(view: LayerView) -> Iterator[Tensor]:
    """Attention of the view's queries, oldest first: [kv_heads, group, rows, entries] each.

    Softmax in float32, and causal: query j of w sees entries 0 .. length - w + j. A block ends with
    the last entry that its last query sees.
    """
    assert view.queries is not None, "this press needs queries"
    kv_heads, length, _ = view.keys.shape
    keys = view.keys.float().unsqueeze(1)  # [kv_heads, 1, length, head_dim]
    heads, window, head_dim = view.queries.shape
    group = heads // kv_heads  # query heads that share a key lie side by side
    queries = view.queries.float().reshape(kv_heads, group, window, head_dim)
    for start in range(0, window, BLOCK):
        rows = queries[:, :, start : start + BLOCK]
        count = rows.shape[2]
        seen = length - window + start + count
        logits = rows @ keys[:, :, :seen].mT * view.scale
        later = torch.ones(count, seen, dtype=torch.bool, device=keys.device).triu(seen - count + 1)
        yield logits.masked_fill(later, float("-inf")).softmax(-1)


def attention_sum(view: LayerView) -> Tensor:  # [kv_heads, group, length]
    """What each entry receives from the view's queries, summed over them."""
    assert view.queries is not None, "this press needs queries"
    kv_heads, length, _ = view.keys.shape
    group = view.queries.shape[0] // kv_heads
    total = torch.zeros(kv_heads, group, length, device=view.keys.device)
    for block in attention_blocks(view):
        total[..., : block.shape[-1]] += block.sum(-2)
    return total


def with_newest(
    scores: Tensor,  # [kv_heads, n]
    count: int,
) -> Tensor:  # [kv_heads, n + count]
    """Append `count` newer entries that outrank all before them, and the later the more.

    So what is kept of them, where not all fit, is the newest.
    """
    above = float(scores.max()) + 1 if scores.numel() else 1.0
    newest = above + torch.arange(count, dtype=scores.dtype, device=scores.device)
    return torch.cat((scores, newest.expand(len(scores), count)), -1)
