"""Which KV entries are dropped, of which models, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fastinfer.config.checks import ConfigError, check_choice, check_integer, check_number

PressName = Literal[
    "streaming", "knorm", "snapkv", "tova", "observed", "expected_attention", "keydiff", "hybrid",
    "pyramid", "random",
]  # fmt: skip
PressRole = Literal["target", "intermediate", "draft"]
Positions = Literal["original", "in_cache"]

PRESS_NAMES: tuple[str, ...] = get_args(PressName)
PRESS_ROLES: tuple[str, ...] = get_args(PressRole)
POSITIONS: tuple[str, ...] = get_args(Positions)

DEFAULT_RATIO = 0.5

# Layers hold different numbers of entries, so no place in the cache is the next token's in all.
UNEVEN_PRESSES = ("pyramid",)

# Field of `CompressionConfig` -> its flat name.
PRESS_FIELDS = {
    "press": "press",
    "compression_ratio": "compression_ratio",
    "max_cache_tokens": "max_cache_tokens",
    "interval": "press_interval",
    "apply_to": "press_on",
    "positions": "press_positions",
    "num_sinks": "press_sinks",
}


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
        check_choice("press", self.press, PRESS_NAMES)
        if self.compression_ratio is None and self.max_cache_tokens is None:
            object.__setattr__(self, "compression_ratio", DEFAULT_RATIO)
        if self.compression_ratio is not None:
            check_number(
                "compression_ratio", self.compression_ratio, "from 0 to below 1",
                lambda v: 0 <= v < 1,
            )  # fmt: skip
        if self.max_cache_tokens is not None:
            check_integer("max_cache_tokens", self.max_cache_tokens, 1)
            if self.compression_ratio is not None:
                raise ConfigError("max_cache_tokens", "can't be given with a compression_ratio")
        if self.interval is not None:
            check_integer("press_interval", self.interval, 1)
        if not isinstance(self.apply_to, tuple) or not self.apply_to:
            raise ConfigError("press_on", f"must list one or more of {', '.join(PRESS_ROLES)}")
        for role in self.apply_to:
            check_choice("press_on", role, PRESS_ROLES)
        check_choice("press_positions", self.positions, POSITIONS)
        check_integer("press_sinks", self.num_sinks, 0)
        if self.press in UNEVEN_PRESSES and self.positions == "in_cache":
            raise ConfigError(
                "press_positions",
                f"must be original with {self.press}, whose layers hold different numbers of "
                "entries",
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


def compression_from(values: Mapping[str, Any]) -> CompressionConfig | None:
    """None without a press; options of a press that is not there are refused by name."""
    if not values:
        return None
    if "press" not in values:
        field = PRESS_FIELDS[next(iter(values))]
        raise ConfigError(field, f"needs a press: one of {', '.join(PRESS_NAMES)}")
    roles = values.get("apply_to", ("target",))
    if isinstance(roles, str):
        roles = [role.strip() for role in roles.split(",")]
    return CompressionConfig(
        **{**values, "apply_to": tuple(roles) if isinstance(roles, (list, tuple)) else roles}
    )
