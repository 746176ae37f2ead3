"""What a press on the target costs: the full cache's law beside the compressed one's, now and then.

A second session of the same weights without a press reads what was committed and gives its laws at
the positions of one round. Both are the model's own, before temperature and filters.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fastinfer.events import Shadow
from fastinfer.models.session import Session


class ShadowMeter:
    """Follows one request, and compares every `every`-th round until the full cache is full."""

    def __init__(self, pressed: Session, full: Session, every: int, prompt: Sequence[int]) -> None:
        self.pressed = pressed
        self.full = full
        self.every = every
        self._tokens = list(prompt)

    def add(self, index: int, token_ids: Sequence[int]) -> Shadow | None:
        """Round `index` committed these; a comparison where one is due."""
        self._tokens.extend(token_ids)
        prefix = self._tokens[:-1]  # what the last of them was drawn after
        if index == 0 or index % self.every or len(prefix) > self.full.context:
            return None
        assert self.pressed.last_logits is not None, "it has just read"
        full = self.full.forward(prefix, len(token_ids))
        return compare(full, self.pressed.last_logits[: len(token_ids)])


def compare(full: Tensor, pressed: Tensor) -> Shadow:
    """Laws of two rows of logits [n, vocab]."""
    p, q = full.double().log_softmax(-1), pressed.double().log_softmax(-1)
    return Shadow(
        num_positions=len(full),
        kl_nats=max(0.0, float((p.exp() * (p - q)).sum(-1).mean())),
        top1_agreement=float((p.argmax(-1) == q.argmax(-1)).double().mean()),
    )
