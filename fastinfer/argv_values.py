"""Texts of a command line to values; a bad one is left for the config to refuse by name."""

from __future__ import annotations

import contextlib
from typing import Any

from fastinfer.config import ConfigError


def number(text: str | None) -> Any:
    """The number that a text spells, or the text itself."""
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
