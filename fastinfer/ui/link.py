"""A run as a link: the prompt and the options in the part of an address behind `#`, never a text
that a model wrote. That part stays in the browser; no server's log sees it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastinfer.ui.form import FIELDS, OPENING, form_values

LONGEST = 100_000  # characters of a link that are looked at


def write_link(prompt: str, options: Mapping[str, Any]) -> str:
    """The part behind `#` that fills the form as this run had it."""
    values = form_values(options)
    return urlencode({"prompt": prompt} | {name: _word(values[name]) for name in FIELDS})


def read_link(fragment: str, choices: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """The form's values in a link, `prompt` among them; empty where there is nothing to read.

    Anybody can write a link, so what a field can't show is left out: an unknown name, a number that
    is none, a choice that this page doesn't offer. What the values are worth is for
    `form_to_config` to say.
    """
    if len(fragment) > LONGEST:
        return {}
    found = dict(parse_qsl(fragment.removeprefix("#"), keep_blank_values=True))
    values: dict[str, Any] = {}
    for name, word in found.items():
        value = word if name == "prompt" else _value(name, word, choices.get(name))
        if value is not None:
            values[name] = value
    return values


def _word(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)


def _value(name: str, word: str, choices: Collection[str] | None) -> Any:
    """The value of a field as its widget wants it, or None."""
    opening = OPENING.get(name)
    if isinstance(opening, list):
        chosen = [part for part in word.split(",") if part in (choices or ())]
        return chosen or None
    if choices is not None:
        return word if word in choices else None
    if isinstance(opening, str):
        return word
    return None if opening is None else _number(word)


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number
