"""The form's values -> DecodeConfig. Pure; `DecodeConfig` does all checking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastinfer.config import DecodeConfig

# The order in which the page hands the values over.
FIELDS = (
    "method", "draft", "rule", "gamma_policy", "gamma", "gamma_min", "gamma_max",
    "gamma_threshold", "inner_gamma", "rounds", "max_new_tokens", "temperature", "top_k", "top_p",
    "min_p", "typical_p", "repetition_penalty", "stop", "seed",
)  # fmt: skip

# Typed as text: gr.Number shows an empty field as 0, and JavaScript loses digits of a long seed.
TYPED = ("seed", "gamma_min", "inner_gamma")


def form_to_config(values: Sequence[Any]) -> DecodeConfig:
    """A config from the form's values, in the order of `FIELDS`.

    Raises `ConfigError` naming the field. An empty field means "not given".
    """
    given = dict(zip(FIELDS, values, strict=True))
    given["stop"] = _lines(given["stop"])
    given |= {name: _typed(given[name]) for name in TYPED}
    return DecodeConfig.from_mapping({name: _whole(value) for name, value in given.items()})


def _whole(value: Any) -> Any:
    """A browser has one kind of number, so 4 may arrive as 4.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _lines(text: str | None) -> list[str]:
    r"""Stop texts, one a line; `\n` and `\t` stand for a line break and a tab."""
    lines = (text or "").split("\n")
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines if line]


def _typed(text: str | None) -> int | str | None:
    """A number where it is one; other text is left for `DecodeConfig` to refuse."""
    text = (text or "").strip()
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text
