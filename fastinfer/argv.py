"""Texts of argv to checked values, and options to a parser, for commands with plain tables of
them."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Collection
from typing import Any

from fastinfer.config import ConfigError


def names_in(field: str, text: str, known: Collection[str]) -> tuple[str, ...]:
    """Known names with commas between, each at most once; raises `ConfigError`."""
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    for name in names:
        if name not in known:
            raise ConfigError(field, f"must be among {', '.join(known)}, not {name!r}")
        if names.count(name) > 1:
            raise ConfigError(field, f"names {name} twice; once is enough")
    return names


def whole(field: str, text: str, low: int) -> int:
    """A whole number of at least `low`; raises `ConfigError`."""
    value = number(text)
    if not isinstance(value, int) or value < low:
        raise ConfigError(field, f"must be a whole number, {low} or more, not {text!r}")
    return value


def number(text: str | None) -> Any:
    """The number that a text spells, or the text itself, to be refused by name."""
    if text is None:
        return None
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def require_utf8(field: str, text: str) -> str:
    """The text; raises `ConfigError` for bytes that are no UTF-8, which argv smuggles in as lone
    surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(field, "must be a text in UTF-8") from error
    return text


def add_options(group: argparse._ArgumentGroup, *options: tuple[str, str, str | None, str]) -> None:
    """Options as (name, metavar, default, help)."""
    for option, metavar, default, text in options:
        shown = f"{text} (default {default})" if default else text
        group.add_argument(option, metavar=metavar, default=default, help=shown)
