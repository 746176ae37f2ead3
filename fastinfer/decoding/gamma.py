"""Gamma policies: how many tokens to draft next. State lives for one request only."""

from __future__ import annotations

from collections.abc import Callable

from fastinfer.config import GammaConfig
from fastinfer.decoding.protocols import GammaController


class ConstantGamma:
    """Always the same."""

    def __init__(self, config: GammaConfig) -> None:
        self.gamma = config.initial

    def update(self, num_drafted: int, num_accepted: int) -> None:
        """Nothing to learn."""


class _Adaptive:
    """Up by one when the whole block stands, down otherwise; between floor and ceiling.

    A block cut short by the token budget says nothing of a longer one: it moves nothing unless it
    failed.
    """

    def __init__(self, config: GammaConfig) -> None:
        self.gamma = config.initial
        self.floor = config.floor
        self.ceiling = config.maximum

    def update(self, num_drafted: int, num_accepted: int) -> None:
        """Learn from a round."""
        if num_accepted < num_drafted:
            self.gamma = max(self.floor, self.lower())
        elif num_drafted >= self.gamma:
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
}


def controller_for(config: GammaConfig) -> GammaController:
    """A fresh controller."""
    return POLICIES[config.policy](config)
