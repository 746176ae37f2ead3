"""How a law is made from logits."""

from __future__ import annotations

from dataclasses import dataclass

from fastinfer.config.checks import check_integer, check_number

MAX_SEED = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How a law is made from logits, and the seed that draws from it.

    Filters act in this order, for every model: penalties, temperature, top-k, top-p, min-p,
    typical. Raises `ConfigError` naming the field.
    """

    temperature: float = 1.0  # 0 is greedy: a one-hot law
    top_k: int = 0  # 0 is off
    top_p: float = 1.0  # 1 is off
    min_p: float = 0.0  # 0 is off
    typical_p: float = 1.0  # 1 is off
    repetition_penalty: float = 1.0  # 1 is off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None  # None: a fresh one, reported in `Started`

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, "from 0 to 100", lambda v: 0 <= v <= 100)
        check_integer("top_k", self.top_k, 0)
        check_number("top_p", self.top_p, "above 0 and at most 1", lambda v: 0 < v <= 1)
        check_number("min_p", self.min_p, "from 0 to 1", lambda v: 0 <= v <= 1)
        check_number("typical_p", self.typical_p, "above 0 and at most 1", lambda v: 0 < v <= 1)
        check_number(
            "repetition_penalty", self.repetition_penalty, "from 0.01 to 10",
            lambda v: 0.01 <= v <= 10,  # a smaller one would make logits overflow
        )  # fmt: skip
        for name in ("presence_penalty", "frequency_penalty"):
            check_number(name, getattr(self, name), "from -2 to 2", lambda v: -2 <= v <= 2)
        if self.seed is not None:
            check_integer("seed", self.seed, 0, MAX_SEED)
