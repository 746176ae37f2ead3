"""One request: its frozen config, checked in one place for page, HTTP and CLI."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fastinfer.config.checks import ConfigError, check_choice, check_integer
from fastinfer.config.compression import (
    PRESS_FIELDS,
    SELF_COMPRESSION,
    CompressionConfig,
    compression_from,
)
from fastinfer.config.gamma import MAX_GAMMA, GammaConfig
from fastinfer.config.sampling import SamplingConfig

Method = Literal["autoregressive", "speculative", "cascade"]
Rule = Literal["residual", "coupled"]
DraftKind = Literal["model", "prompt-lookup", "lookup-first", "self"]
IntermediateKind = Literal["model", "self"]
Dtype = Literal["auto", "float32", "bfloat16"]

METHODS: tuple[str, ...] = get_args(Method)
RULES: tuple[str, ...] = get_args(Rule)
DRAFT_KINDS: tuple[str, ...] = get_args(DraftKind)
# Those that ask a draft model.
MODEL_DRAFTS: frozenset[str] = frozenset({"model", "lookup-first"})
INTERMEDIATE_KINDS: tuple[str, ...] = get_args(IntermediateKind)
DTYPES: tuple[str, ...] = get_args(Dtype)

# One rule under two names: arXiv:2211.17192 (Google) and arXiv:2302.01318 (DeepMind).
RULE_ALIASES = {"google": "residual", "deepmind": "residual"}

MAX_STOPS = 16
MAX_LOGPROBS = 20


@dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """One request, prompt aside.

    `gamma` is the block that the target verifies. In a cascade `inner_gamma` is the block that the
    intermediate verifies, and at most `rounds` such blocks make up one for the target. A `draft`
    "lookup-first" copies from the text where that repeats itself and asks the model elsewhere. A
    `draft` or `intermediate` that is "self" is the target's own weights over a compressed cache of
    its own (TriForce's middle tier, arXiv:2404.11912), which changes nothing in the output's law.
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
        check_choice("method", self.method, METHODS)
        check_choice("draft", self.draft, DRAFT_KINDS)
        check_choice("intermediate", self.intermediate, INTERMEDIATE_KINDS)
        check_choice("rule", self.rule, RULES)
        check_integer("max_new_tokens", self.max_new_tokens, 1)
        check_integer("min_new_tokens", self.min_new_tokens, 0)
        check_integer("rounds", self.rounds, 1, MAX_GAMMA)
        check_integer("shadow_every", self.shadow_every, 0)
        if self.logprobs is not None:
            check_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
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
        compression = {key: given.pop(flat) for key, flat in PRESS_FIELDS.items() if flat in given}
        return cls(
            stop=tuple(stops),
            rule=rule,
            sampling=SamplingConfig(**sampling),
            gamma=GammaConfig(**gamma),
            inner_gamma=_inner_gamma(inner_gamma),
            compression=compression_from(compression),
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
        flat |= {name: getattr(self.compression, key, None) for key, name in PRESS_FIELDS.items()}
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


_SAMPLING_FIELDS = tuple(f.name for f in dataclasses.fields(SamplingConfig))
_GAMMA_FIELDS = {
    "policy": "gamma_policy",
    "initial": "gamma",
    "minimum": "gamma_min",
    "maximum": "gamma_max",
    "threshold": "gamma_threshold",
}
_PLAIN_FIELDS = (
    "method", "draft", "intermediate", "rule", "max_new_tokens", "min_new_tokens", "stop",
    "ignore_eos", "rounds", "use_cache", "shadow_every", "logprobs",
)  # fmt: skip
FLAT_FIELDS = (
    *_PLAIN_FIELDS, *_SAMPLING_FIELDS, *_GAMMA_FIELDS.values(), "inner_gamma",
    *PRESS_FIELDS.values(),
)  # fmt: skip
