"""SnapKV: what an observation window of recent queries attends to (arXiv:2404.14469)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from fastinfer.presses.attention import attention_sum, with_newest
from fastinfer.presses.base import LayerView, Press


@dataclass(frozen=True, kw_only=True)
class SnapKV(Press):
    """Keeps what the last `num_queries` tokens attend to, neighbours included, and those tokens.

    Attention is smoothed over `kernel` neighbours by a mean, with zeros beyond both ends, as in
    kvpress (the paper's code can also take the maximum), and averaged over the query heads that
    share a key. Where fewer tokens are to be kept than the window holds, the newest of
    them are: kvpress leaves that to chance. A prompt no longer than the window, which kvpress
    refuses, is reduced to its newest tokens too. While decoding, the window is at most the tokens
    since the last compression.
    """

    name = "snapkv"
    summary = "what the last 64 tokens attend to, with its neighbours"
    num_queries: int = 64
    kernel: int = 5

    def score(self, view: LayerView) -> Tensor:
        """Smoothed attention of the window on what lies before it; the window outranks all."""
        assert view.queries is not None
        length, window = view.keys.shape[1], view.queries.shape[1]
        if window == length:
            return with_newest(view.keys.new_zeros(len(view.keys), 0).float(), window)
        before = attention_sum(view)[..., : length - window]
        smooth = F.avg_pool1d(before, self.kernel, stride=1, padding=self.kernel // 2)
        return with_newest(smooth.mean(dim=1), window)
