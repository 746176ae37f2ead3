"""How many tokens are drafted a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fastinfer.config.checks import ConfigError, check_choice, check_integer, check_number

GammaPolicy = Literal["cost_aware", "confidence", "aimd", "additive", "constant"]
GAMMA_POLICIES: tuple[str, ...] = get_args(GammaPolicy)

MAX_GAMMA = 64

# Floor of each policy's gamma when the user sets none; a smaller initial gamma lowers it.
DEFAULT_FLOORS = {"cost_aware": 0, "confidence": 0, "aimd": 4, "additive": 2, "constant": 0}


@dataclass(frozen=True, kw_only=True)
class GammaConfig:
    """How many tokens are drafted a round, and how that number moves.

    `minimum` None means the policy's own floor (aimd 4, additive 2, else 0), or `initial` where
    that is lower.
    """

    policy: GammaPolicy = "cost_aware"
    initial: int = 4
    minimum: int | None = None
    maximum: int = 16
    threshold: float = 0.4  # of the confidence policy

    def __post_init__(self) -> None:
        check_choice("gamma_policy", self.policy, GAMMA_POLICIES)
        check_integer("gamma", self.initial, 1, MAX_GAMMA)
        check_integer("gamma_max", self.maximum, 1, MAX_GAMMA)
        if self.minimum is not None:
            check_integer("gamma_min", self.minimum, 1, MAX_GAMMA)
        check_number("gamma_threshold", self.threshold, "from 0 to 1", lambda v: 0 <= v <= 1)
        if self.policy != "constant" and not self.floor <= self.initial <= self.maximum:
            raise ConfigError(
                "gamma",
                f"must lie between gamma_min and gamma_max ({self.floor} to {self.maximum}), "
                f"not {self.initial}",
            )

    @property
    def floor(self) -> int:
        """The least gamma that the policy falls to."""
        if self.minimum is not None:
            return self.minimum
        return min(self.initial, DEFAULT_FLOORS[self.policy])

    @property
    def largest(self) -> int:
        """At least the largest block that is ever asked for, and the same for every policy."""
        return max(self.initial, self.maximum)
