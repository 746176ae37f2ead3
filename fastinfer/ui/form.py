"""The form's values <-> `DecodeConfig`. Pure; `DecodeConfig` does all checking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastinfer.config import DecodeConfig

NO_PRESS = "none"

# Every field in the order in which the page hands the values over, as the page opens.
OPENING: dict[str, Any] = {
    "method": "cascade", "draft": "model", "intermediate": "model", "rule": "residual",
    "gamma_policy": "cost_aware", "gamma": 4, "gamma_min": "", "gamma_max": 16,
    "gamma_threshold": 0.4, "inner_gamma": "", "rounds": 2,
    "max_new_tokens": 160, "temperature": 0.8, "top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1,
    "repetition_penalty": 1, "stop": "", "seed": "",
    "press": NO_PRESS, "compression_ratio": 0.5, "max_cache_tokens": "", "press_interval": "",
    "press_on": ["target"], "press_positions": "original", "press_sinks": 4, "shadow_every": 0,
}  # fmt: skip
FIELDS = tuple(OPENING)

# Typed as text: gr.Number shows an empty field as 0, and JavaScript loses digits of a long seed.
TYPED = ("seed", "gamma_min", "inner_gamma", "max_cache_tokens", "press_interval")
PRESS_FIELDS = FIELDS[FIELDS.index("press") : FIELDS.index("shadow_every")]


def form_to_config(values: Sequence[Any]) -> DecodeConfig:
    """A config from the form's values, in the order of `FIELDS`.

    Raises `ConfigError` naming the field. An empty field means "not given". Without a press its
    fields say nothing, and a budget takes the place of the ratio.
    """
    given = dict(zip(FIELDS, values, strict=True))
    given["stop"] = _lines(given["stop"])
    given |= {name: _typed(given[name]) for name in TYPED}
    if given["press"] in (None, NO_PRESS):
        given |= dict.fromkeys(PRESS_FIELDS)
    elif given["max_cache_tokens"] is not None:
        given["compression_ratio"] = None
    return DecodeConfig.from_mapping({name: _whole(value) for name, value in given.items()})


def form_values(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the form shows for options under their flat names: the inverse of `form_to_config`.

    Every field is there: what the options leave out stands as the page opens.
    """
    given = {name: value for name, value in options.items() if value is not None}
    values = {name: given.get(name, opening) for name, opening in OPENING.items()}
    values |= {name: str(values[name]) for name in TYPED}
    stops = values["stop"]
    if not isinstance(stops, str):
        values["stop"] = "\n".join(map(_escaped, stops))
    return values


def _whole(value: Any) -> Any:
    """A browser has one kind of number, so 4 may arrive as 4.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _lines(text: str | None) -> list[str]:
    r"""Stop texts, one a line; `\n` and `\t` stand for a line break and a tab."""
    lines = (text or "").split("\n")
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines if line]


def _escaped(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


def _typed(text: str | None) -> int | str | None:
    """A number where it is one; other text is left for `DecodeConfig` to refuse."""
    text = (text or "").strip()
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text
