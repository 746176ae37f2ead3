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
DraftKind = Literal["model", "prompt-lookup", "self"]
IntermediateKind = Literal["model", "self"]
PressName = Literal[
    "streaming", "knorm", "snapkv", "tova", "observed", "expected_attention", "keydiff", "hybrid",
    "pyramid", "random",
]  # fmt: skip
PressRole = Literal["target", "intermediate", "draft"]
Positions = Literal["original", "in_cache"]
Dtype = Literal["auto", "float32", "bfloat16"]

METHODS: tuple[str, ...] = get_args(Method)
GAMMA_POLICIES: tuple[str, ...] = get_args(GammaPolicy)
RULES: tuple[str, ...] = get_args(Rule)
DRAFT_KINDS: tuple[str, ...] = get_args(DraftKind)
INTERMEDIATE_KINDS: tuple[str, ...] = get_args(IntermediateKind)
PRESS_NAMES: tuple[str, ...] = get_args(PressName)
PRESS_ROLES: tuple[str, ...] = get_args(PressRole)
POSITIONS: tuple[str, ...] = get_args(Positions)
DTYPES: tuple[str, ...] = get_args(Dtype)

# One rule under two names: arXiv:2211.17192 (Google) and arXiv:2302.01318 (DeepMind).
RULE_ALIASES = {"google": "residual", "deepmind": "residual"}

MAX_GAMMA = 64
MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_SEED = 2**63 - 1
DEFAULT_RATIO = 0.5


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

    policy: GammaPolicy = "cost_aware"
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

    @property
    def largest(self) -> int:
        """At least the largest block that is ever asked for, and the same for every policy."""
        return max(self.initial, self.maximum)


@dataclass(frozen=True, kw_only=True)
class CompressionConfig:
    """Which KV entries are dropped, of which models, and when.

    How many stay: `compression_ratio` is the fraction of all tokens read so far that is removed
    (0.5 where neither is given), `max_cache_tokens` a number of entries. When: after the prompt,
    and with `interval` also while decoding: each time that so many more tokens are committed, or
    with `max_cache_tokens` each time that the cache holds so many entries too many.

    Positions: under `original` kept keys and new tokens have their places in the sequence; under
    `in_cache` their places in the cache, so generation may pass the context that the model was
    trained on (StreamingLLM, arXiv:2309.17453). Raises `ConfigError` naming the flat field.
    """

    press: PressName
    compression_ratio: float | None = None
    max_cache_tokens: int | None = None
    interval: int | None = None  # None: after the prompt only
    apply_to: tuple[PressRole, ...] = ("target",)
    positions: Positions = "original"
    num_sinks: int = 4

    def __post_init__(self) -> None:
        _choice("press", self.press, PRESS_NAMES)
        if self.compression_ratio is None and self.max_cache_tokens is None:
            object.__setattr__(self, "compression_ratio", DEFAULT_RATIO)
        if self.compression_ratio is not None:
            _number(
                "compression_ratio", self.compression_ratio, "from 0 to below 1",
                lambda v: 0 <= v < 1,
            )  # fmt: skip
        if self.max_cache_tokens is not None:
            _integer("max_cache_tokens", self.max_cache_tokens, 1)
            if self.compression_ratio is not None:
                raise ConfigError("max_cache_tokens", "can't be given with a compression_ratio")
        if self.interval is not None:
            _integer("press_interval", self.interval, 1)
        if not isinstance(self.apply_to, tuple) or not self.apply_to:
            raise ConfigError("press_on", f"must list one or more of {', '.join(PRESS_ROLES)}")
        for role in self.apply_to:
            _choice("press_on", role, PRESS_ROLES)
        _choice("press_positions", self.positions, POSITIONS)
        _integer("press_sinks", self.num_sinks, 0)
        if self.press == "pyramid" and self.positions == "in_cache":
            raise ConfigError(
                "press_positions",
                "must be original with pyramid, whose layers hold different numbers of entries",
            )

    @property
    def drops(self) -> bool:
        """Whether anything is ever dropped: a ratio of 0 removes nothing."""
        return self.compression_ratio != 0


# What a model drafts over for itself where no press is set for that role: without one it would cost
# as much a token as it saves.
SELF_COMPRESSION = CompressionConfig(
    press="streaming", interval=64, apply_to=("intermediate", "draft")
)


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """One request, prompt aside.

    `gamma` is the block that the target verifies. In a cascade `inner_gamma` is the block that the
    intermediate verifies, and at most `rounds` such blocks make up one for the target. A `draft` or
    `intermediate` that is "self" is the target's own weights over a compressed cache of its own
    (TriForce's middle tier, arXiv:2404.11912), which changes nothing in the law of the output.
    `shadow_every` n asks in every n-th round of a lossy run what the full cache would have said.
    """

    method: Method = "speculative"
    draft: DraftKind = "model"
    intermediate: IntermediateKind = "model"
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
    compression: CompressionConfig | None = None
    shadow_every: int = 0  # 0 is off
    logprobs: int | None = None  # alternatives beside each token's own; None: not even that

    def __post_init__(self) -> None:
        _choice("method", self.method, METHODS)
        _choice("draft", self.draft, DRAFT_KINDS)
        _choice("intermediate", self.intermediate, INTERMEDIATE_KINDS)
        _choice("rule", self.rule, RULES)
        _integer("max_new_tokens", self.max_new_tokens, 1)
        _integer("min_new_tokens", self.min_new_tokens, 0)
        _integer("rounds", self.rounds, 1, MAX_GAMMA)
        _integer("shadow_every", self.shadow_every, 0)
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
        self._check_compression()

    def _check_compression(self) -> None:
        if not self.use_cache:
            if self.compression is not None:
                raise ConfigError("press", "needs the cache; leave use_cache on")
            if "self" in (self.draft, self.intermediate):
                raise ConfigError("draft", "self needs the cache; leave use_cache on")
        press = self.compression
        if press is None or press.max_cache_tokens is None:
            return
        least = press.num_sinks + self.num_recent
        if press.max_cache_tokens < least:
            raise ConfigError(
                "max_cache_tokens",
                f"must be {least} or more: press_sinks and one block of gamma are always kept",
            )

    @property
    def num_recent(self) -> int:
        """Newest entries that no press drops: the longest block and the verifier's own token.

        No matter of method or policy, so that all of them meet the same compressions.
        """
        return max(self.gamma.largest, self.inner_gamma.largest) + 1

    def compression_of(self, role: str) -> CompressionConfig | None:
        """What compresses this role's cache, if anything does."""
        if self.compression is not None and role in self.compression.apply_to:
            return self.compression
        kinds: dict[str, str] = {"draft": self.draft, "intermediate": self.intermediate}
        return SELF_COMPRESSION if kinds.get(role) == "self" else None

    @property
    def lossless(self) -> bool:
        """Whether the output follows the law of the target with its whole cache."""
        press = self.compression_of("target")
        return press is None or not press.drops

    @property
    def lossless_reason(self) -> str:
        """Why, in one sentence without a full stop."""
        press = self.compression_of("target")
        if press is not None and press.drops:
            return f"{press.press} drops entries of the target's own cache"
        if self.compression is not None and self.compression.drops:
            return "presses act on drafting models only; the target keeps its whole cache"
        return "the text follows the target's own law"

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> DecodeConfig:
        """A config from flat names, as forms, JSON bodies and argv give them.

        Flat names: the fields of `DecodeConfig` and `SamplingConfig`; `gamma`, `gamma_policy`,
        `gamma_min`, `gamma_max`, `gamma_threshold`, `inner_gamma`; `press`, `compression_ratio`,
        `max_cache_tokens`, `press_interval`, `press_on`, `press_positions`, `press_sinks`. `stop`
        may be one text or a list, `press_on` a list or roles with commas between. None means "not
        given". Raises `ConfigError` for an unknown name or a bad value.
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
        compression = {key: given.pop(flat) for key, flat in _PRESS_FIELDS.items() if flat in given}
        return cls(
            stop=tuple(stops),
            rule=rule,
            sampling=SamplingConfig(**sampling),
            gamma=GammaConfig(**gamma),
            inner_gamma=_inner_gamma(inner_gamma),
            compression=_compression(compression),
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
        flat |= {name: getattr(self.compression, key, None) for key, name in _PRESS_FIELDS.items()}
        if self.compression is not None:
            flat["press_on"] = list(self.compression.apply_to)
        return flat


def _inner_gamma(values: Mapping[str, Any]) -> GammaConfig:
    """The intermediate's block; its start is `inner_gamma` to the user."""
    try:
        return GammaConfig(**values)
    except ConfigError as error:
        raise ConfigError(
            "inner_gamma" if error.field == "gamma" else error.field, error.message
        ) from None


def _compression(values: Mapping[str, Any]) -> CompressionConfig | None:
    """None without a press; options of a press that is not there are refused by name."""
    if not values:
        return None
    if "press" not in values:
        field = _PRESS_FIELDS[next(iter(values))]
        raise ConfigError(field, f"needs a press: one of {', '.join(PRESS_NAMES)}")
    roles = values.get("apply_to", ("target",))
    if isinstance(roles, str):
        roles = [role.strip() for role in roles.split(",")]
    return CompressionConfig(
        **{**values, "apply_to": tuple(roles) if isinstance(roles, (list, tuple)) else roles}
    )


_SAMPLING_FIELDS = tuple(f.name for f in dataclasses.fields(SamplingConfig))
_GAMMA_FIELDS = {
    "policy": "gamma_policy",
    "initial": "gamma",
    "minimum": "gamma_min",
    "maximum": "gamma_max",
    "threshold": "gamma_threshold",
}
_PRESS_FIELDS = {
    "press": "press",
    "compression_ratio": "compression_ratio",
    "max_cache_tokens": "max_cache_tokens",
    "interval": "press_interval",
    "apply_to": "press_on",
    "positions": "press_positions",
    "num_sinks": "press_sinks",
}
_PLAIN_FIELDS = (
    "method", "draft", "intermediate", "rule", "max_new_tokens", "min_new_tokens", "stop",
    "ignore_eos", "rounds", "use_cache", "shadow_every", "logprobs",
)  # fmt: skip
FLAT_FIELDS = (
    *_PLAIN_FIELDS, *_SAMPLING_FIELDS, *_GAMMA_FIELDS.values(), "inner_gamma",
    *_PRESS_FIELDS.values(),
)  # fmt: skip
