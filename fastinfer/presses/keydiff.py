"""KeyDiff: the keys that differ most from the others (arXiv:2504.15364)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from fastinfer.presses.base import LayerView, Press


@dataclass(frozen=True, kw_only=True)
class KeyDiff(Press):
    """Drops the keys that point where the average key points.

    The paper compresses block by block while it reads the prompt; here a press acts when the prompt
    has been read, and at intervals while decoding.
    """

    name = "keydiff"
    summary = "the keys that differ most from the average key"
    num_queries: int = 0

    def score(self, view: LayerView) -> Tensor:
        """Minus the cosine between the key and the mean of the normalised keys of its head."""
        keys = view.keys.float()
        mean = F.normalize(keys, dim=-1).mean(dim=1, keepdim=True)
        return -F.cosine_similarity(keys, mean, dim=-1)
