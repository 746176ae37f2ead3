"""Expected attention: what future queries will attend to, if they are like the past ones.

arXiv:2510.00636. Queries before rotation are taken for a Gaussian; a future query is one of them
under the mean rotation of the next positions; the expectation of exp(q.k) is then known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fastinfer.presses.base import ALL_QUERIES, LayerView, Press


@dataclass(frozen=True, kw_only=True)
class ExpectedAttention(Press):
    """Keeps what the next `num_future` queries are expected to attend to, times the value's norm.

    As in kvpress: the first `num_sinks` entries are outside of it all (their queries are outliers,
    their scores the highest), the softmax runs over the other entries, and heads that share a key
    are averaged. The norm is the value's own, not that of what it adds to the residual stream, and
    no constant is added to the expectation before. Queries from before the last compression do not
    count, because a press keeps no state.
    """

    name = "expected_attention"
    summary = "what future queries are expected to attend to, from the statistics of past ones"
    num_queries: int = ALL_QUERIES
    num_future: int = 512
    num_sinks: int = 4

    def score(self, view: LayerView) -> Tensor:
        """Expected attention times the norm of the value."""
        keys = view.keys[:, self.num_sinks :].float().unsqueeze(1)  # [kv_heads, 1, n, head_dim]
        values = view.values[:, self.num_sinks :].float()
        mean, covariance = self._future_queries(view)
        logits = (keys @ mean.unsqueeze(-1)).squeeze(-1) * view.scale
        logits += ((keys @ covariance) * keys).sum(-1) * view.scale**2 / 2
        scores = logits.softmax(-1).mean(dim=1) * torch.linalg.vector_norm(values, dim=-1)
        above = float(scores.max()) + 1 if scores.numel() else 1.0
        num_sinks = view.keys.shape[1] - scores.shape[1]
        return F.pad(scores, (num_sinks, 0), value=above)

    def _future_queries(self, view: LayerView) -> tuple[Tensor, Tensor]:
        """Mean [kv_heads, group, head_dim] and covariance [.., head_dim, head_dim] of queries.

        Each query is turned back by its own position; statistics are then turned by the mean
        rotation of the positions to come.
        """
        assert view.queries is not None
        kv_heads, length, _ = view.keys.shape
        heads, window, head_dim = view.queries.shape
        device = view.queries.device
        own = torch.arange(window, device=device) + (view.next_position - window)
        plain = view.turn(view.queries.float(), -own)
        plain = plain[:, max(self.num_sinks - (length - window), 0) :]
        plain = plain.reshape(kv_heads, heads // kv_heads, plain.shape[1], head_dim)
        mean = plain.mean(dim=2, keepdim=True)
        centred = plain - mean
        covariance = centred.mT @ centred / centred.shape[2]

        future = torch.arange(self.num_future, device=device) + view.next_position
        units = torch.eye(head_dim, device=device).unsqueeze(1)  # [head_dim, 1, head_dim]
        turned = view.turn(units.expand(-1, self.num_future, -1), future)
        rotation = turned.mean(dim=1)  # row i is unit vector i under the mean rotation
        return (mean @ rotation).squeeze(2), rotation.mT @ covariance @ rotation
