"""Gamma policies: how many tokens to draft next. State lives for one request only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastinfer.config import GammaConfig
from fastinfer.decoding.cost_aware import CostAwareGamma
from fastinfer.decoding.protocols import GammaController, Outcome


class ConstantGamma:
    """Always the same."""

    per_token = False

    def __init__(self, config: GammaConfig) -> None:
        self.gamma = config.initial

    def keep_drafting(self, confidences: Sequence[float]) -> bool:
        """Up to gamma."""
        return True

    def update(self, outcome: Outcome) -> None:
        """Nothing to learn."""


class ConfidenceGamma:
    """Drafts on until a token was drawn with little confidence.

    The rule of transformers' assisted generation and of llama.cpp's `p_min`: stop once the draft's
    largest probability falls under the threshold (`sampling.confidences`). Stopping after such a
    token is exact; leaving it out because of its own value would not be.
    """

    per_token = True

    def __init__(self, config: GammaConfig) -> None:
        self.gamma = config.maximum
        self.threshold = config.threshold

    def keep_drafting(self, confidences: Sequence[float]) -> bool:
        """While the last token was a confident one."""
        return not confidences or confidences[-1] >= self.threshold

    def update(self, outcome: Outcome) -> None:
        """Nothing to learn."""


class _Adaptive:
    """Up by one when the whole block stands, down otherwise; between floor and ceiling.

    A block cut short by the token budget says nothing of a longer one: it moves nothing unless it
    failed.
    """

    per_token = False

    def __init__(self, config: GammaConfig) -> None:
        self.gamma = config.initial
        self.floor = config.floor
        self.ceiling = config.maximum

    def keep_drafting(self, confidences: Sequence[float]) -> bool:
        """Up to gamma."""
        return True

    def update(self, outcome: Outcome) -> None:
        """Learn from a round."""
        if outcome.num_accepted < outcome.num_drafted:
            self.gamma = max(self.floor, self.lower())
        elif outcome.num_drafted >= self.gamma:
            self.gamma = min(self.ceiling, self.gamma + 1)

    def lower(self) -> int:
        """Where a rejection leads, floor aside."""
        raise NotImplementedError


class AIMDGamma(_Adaptive):
    """Additive increase, multiplicative decrease: +1, or gamma // 2."""

    def lower(self) -> int:
        """Half."""
        return self.gamma // 2


class AdditiveGamma(_Adaptive):
    """+1 or -1."""

    def lower(self) -> int:
        """One less."""
        return self.gamma - 1


POLICIES: dict[str, Callable[[GammaConfig], GammaController]] = {
    "constant": ConstantGamma,
    "aimd": AIMDGamma,
    "additive": AdditiveGamma,
    "confidence": ConfidenceGamma,
}


def controller_for(config: GammaConfig, draft_cost: float = 0.0) -> GammaController:
    """A fresh controller. `draft_cost` as in `CostAwareGamma`; the others have no use for it."""
    if config.policy == "cost_aware":
        return CostAwareGamma(config, draft_cost)
    return POLICIES[config.policy](config)
