"""What a request may ask for: frozen configs, checked in one place for page, HTTP and CLI."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Method = Literal["autoregressive", "speculative", "cascade"]
GammaPolicy = Literal["cost_aware", "confidence", "aimd", "additive", "constant"]
Rule = Literal["residual", "coupled"]
DraftKind = Literal["model", "prompt-lookup"]
Dtype = Literal["auto", "float32", "bfloat16"]

METHODS: tuple[str, ...] = get_args(Method)
GAMMA_POLICIES: tuple[str, ...] = get_args(GammaPolicy)
RULES: tuple[str, ...] = get_args(Rule)
DRAFT_KINDS: tuple[str, ...] = get_args(DraftKind)
DTYPES: tuple[str, ...] = get_args(Dtype)

# One rule under two names: arXiv:2211.17192 (Google) and arXiv:2302.01318 (DeepMind).
RULE_ALIASES = {"google": "residual", "deepmind": "residual"}

MAX_GAMMA = 64
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_SEED = 2**63 - 1


class ConfigError(ValueError):
    """A value that can't be used. `field` names it; the message says what is allowed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def _number(field: str, value: object, allowed: str, test: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(field, f"must be a number {allowed}, not {value!r}")
    # A whole number may be too large for a float, so the range comes first.
    if not test(value) or not math.isfinite(value):
        raise ConfigError(field, f"must be {allowed}, not {value}")


def _integer(field: str, value: object, low: int, high: int | None = None) -> None:
    allowed = f"{low} or more" if high is None else f"from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(field, f"must be a whole number {allowed}, not {value!r}")
    if value < low or (high is not None and value > high):
        raise ConfigError(field, f"must be {allowed}, not {value}")


def _choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(field, f"must be one of {', '.join(allowed)}, not {value!r}")


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
        _number("temperature", self.temperature, "from 0 to 100", lambda v: 0 <= v <= 100)
        _integer("top_k", self.top_k, 0)
        _number("top_p", self.top_p, "above 0 and at most 1", lambda v: 0 < v <= 1)
        _number("min_p", self.min_p, "from 0 to 1", lambda v: 0 <= v <= 1)
        _number("typical_p", self.typical_p, "above 0 and at most 1", lambda v: 0 < v <= 1)
        _number(
            "repetition_penalty", self.repetition_penalty, "from 0.01 to 10",
            lambda v: 0.01 <= v <= 10,  # a smaller one would make logits overflow
        )  # fmt: skip
        for name in ("presence_penalty", "frequency_penalty"):
            _number(name, getattr(self, name), "from -2 to 2", lambda v: -2 <= v <= 2)
        if self.seed is not None:
            _integer("seed", self.seed, 0, MAX_SEED)


# Floor of each policy's gamma when the user sets none; a smaller initial gamma lowers it.
DEFAULT_FLOORS = {"cost_aware": 0, "confidence": 0, "aimd": 4, "additive": 2, "constant": 0}


@dataclass(frozen=True, kw_only=True)
class GammaConfig:
    """How many tokens are drafted a round, and how that number moves.

    `minimum` None means the policy's own floor (aimd 4, additive 2, else 0), or `initial` where
    that is lower.
    """

    policy: GammaPolicy = "aimd"
    initial: int = 4
    minimum: int | None = None
    maximum: int = 16
    threshold: float = 0.4  # of the confidence policy

    def __post_init__(self) -> None:
        _choice("gamma_policy", self.policy, GAMMA_POLICIES)
        _integer("gamma", self.initial, 1, MAX_GAMMA)
        _integer("gamma_max", self.maximum, 1, MAX_GAMMA)
        if self.minimum is not None:
            _integer("gamma_min", self.minimum, 1, MAX_GAMMA)
        _number("gamma_threshold", self.threshold, "from 0 to 1", lambda v: 0 <= v <= 1)
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


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """One request, prompt aside.

    `gamma` is the block that the target verifies. In a cascade `inner_gamma` is the block that the
    intermediate verifies, and at most `rounds` such blocks make up one for the target.
    """

    method: Method = "speculative"
    draft: DraftKind = "model"
    rule: Rule = "residual"
    max_new_tokens: int = 128
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    gamma: GammaConfig = field(default_factory=GammaConfig)
    inner_gamma: GammaConfig = field(default_factory=GammaConfig)
    rounds: int = 2
    use_cache: bool = True
    logprobs: int | None = None  # alternatives beside each token's own; None: not even that

    def __post_init__(self) -> None:
        _choice("method", self.method, METHODS)
        _choice("draft", self.draft, DRAFT_KINDS)
        _choice("rule", self.rule, RULES)
        _integer("max_new_tokens", self.max_new_tokens, 1)
        _integer("min_new_tokens", self.min_new_tokens, 0)
        _integer("rounds", self.rounds, 1, MAX_GAMMA)
        if self.logprobs is not None:
            _integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        for name in ("ignore_eos", "use_cache"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(name, f"must be true or false, not {getattr(self, name)!r}")
        if self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(
                "min_new_tokens", f"must be at most max_new_tokens ({self.max_new_tokens})"
            )
        if not isinstance(self.stop, tuple) or not all(isinstance(s, str) for s in self.stop):
            raise ConfigError("stop", "must be a list of texts")
        if any(not s for s in self.stop):
            raise ConfigError("stop", "must not hold an empty text; leave it out for no stop text")
        if len(self.stop) > MAX_STOPS:
            raise ConfigError("stop", f"must hold at most {MAX_STOPS} texts, not {len(self.stop)}")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> DecodeConfig:
        """A config from flat names, as forms, JSON bodies and argv give them.

        Flat names: the fields of `DecodeConfig` and `SamplingConfig`, and `gamma`, `gamma_policy`,
        `gamma_min`, `gamma_max`, `gamma_threshold`, `inner_gamma`. `stop` may be one text or a
        list. None means "not given". Raises `ConfigError` for an unknown name or a bad value.
        """
        given = {name: value for name, value in values.items() if value is not None}
        unknown = sorted(set(given) - set(FLAT_FIELDS))
        if unknown:
            raise ConfigError(unknown[0], f"is not an option; known: {', '.join(FLAT_FIELDS)}")
        stop = given.pop("stop", ())
        stops = (stop,) if isinstance(stop, str) else stop
        if not isinstance(stops, (list, tuple)):
            raise ConfigError("stop", "must be a text or a list of texts")
        rule = given.pop("rule", "residual")
        if isinstance(rule, str):
            rule = RULE_ALIASES.get(rule, rule)
        gamma = {
            key: given.pop(flat)
            for key, flat in _GAMMA_FIELDS.items()
            if flat in given
        }  # fmt: skip
        inner = given.pop("inner_gamma", None)
        inner_gamma = dict(gamma) if inner is None else {**gamma, "initial": inner}
        sampling = {name: given.pop(name) for name in _SAMPLING_FIELDS if name in given}
        return cls(
            stop=tuple(stops),
            rule=rule,
            sampling=SamplingConfig(**sampling),
            gamma=GammaConfig(**gamma),
            inner_gamma=_inner_gamma(inner_gamma),
            **given,
        )

    def to_mapping(self) -> dict[str, Any]:
        """Every option under its flat name, JSON-ready: the inverse of `from_mapping`."""
        flat: dict[str, Any] = {
            f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name in FLAT_FIELDS
        }
        flat["stop"] = list(self.stop)
        flat |= {name: getattr(self.sampling, name) for name in _SAMPLING_FIELDS}
        flat |= {flat_name: getattr(self.gamma, key) for key, flat_name in _GAMMA_FIELDS.items()}
        flat["inner_gamma"] = self.inner_gamma.initial
        return flat


def _inner_gamma(values: Mapping[str, Any]) -> GammaConfig:
    """The intermediate's block; its start is `inner_gamma` to the user."""
    try:
        return GammaConfig(**values)
    except ConfigError as error:
        raise ConfigError(
            "inner_gamma" if error.field == "gamma" else error.field, error.message
        ) from None


_SAMPLING_FIELDS = tuple(f.name for f in dataclasses.fields(SamplingConfig))
_GAMMA_FIELDS = {
    "policy": "gamma_policy",
    "initial": "gamma",
    "minimum": "gamma_min",
    "maximum": "gamma_max",
    "threshold": "gamma_threshold",
}
_PLAIN_FIELDS = (
    "method", "draft", "rule", "max_new_tokens", "min_new_tokens", "stop", "ignore_eos", "rounds",
    "use_cache", "logprobs",
)  # fmt: skip
FLAT_FIELDS = (*_PLAIN_FIELDS, *_SAMPLING_FIELDS, *_GAMMA_FIELDS.values(), "inner_gamma")
