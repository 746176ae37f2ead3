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
    """Compares every `every`-th round, until the full cache has no room left."""

    def __init__(self, pressed: Session, full: Session, every: int) -> None:
        self.pressed = pressed
        self.full = full
        self.every = every

    def measure(self, index: int, tokens: Sequence[int], num_positions: int) -> Shadow | None:
        """After round `index`, which gave the last `num_positions` of `tokens`; None if not due."""
        last = self.pressed.last_logits
        prefix = tokens[:-1]  # what the last of them was drawn after
        due = index > 0 and index % self.every == 0
        if not due or last is None or len(prefix) > self.full.context:
            return None
        full = self.full.forward(prefix, num_positions)
        return compare(full, last[:num_positions])


def compare(full: Tensor, pressed: Tensor) -> Shadow:
    """Laws of two rows of logits [n, vocab]."""
    p, q = full.double().log_softmax(-1), pressed.double().log_softmax(-1)
    return Shadow(
        num_positions=len(full),
        kl_nats=max(0.0, float((p.exp() * (p - q)).sum(-1).mean())),
        top1_agreement=float((p.argmax(-1) == q.argmax(-1)).double().mean()),
    )
