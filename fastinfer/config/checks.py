"""The error of a bad value, and the checks that raise it."""

from __future__ import annotations

import math
from collections.abc import Callable


class ConfigError(ValueError):
    """A value that can't be used. `field` names it; the message says what is allowed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def check_number(field: str, value: object, allowed: str, test: Callable[[float], bool]) -> None:
    """Refuse what is no finite number or fails the test; `allowed` says in words what passes."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(field, f"must be a number {allowed}, not {value!r}")
    # A whole number may be too large for a float, so the range comes first.
    if not test(value) or not math.isfinite(value):
        raise ConfigError(field, f"must be {allowed}, not {value}")


def check_integer(field: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse what is no whole number from `low` to `high`."""
    allowed = f"{low} or more" if high is None else f"from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(field, f"must be a whole number {allowed}, not {value!r}")
    if value < low or (high is not None and value > high):
        raise ConfigError(field, f"must be {allowed}, not {value}")


def check_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse what is not among those allowed."""
    if value not in allowed:
        raise ConfigError(field, f"must be one of {', '.join(allowed)}, not {value!r}")
