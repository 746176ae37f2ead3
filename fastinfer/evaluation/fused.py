"""A benchmark's method in one word: `speculative+aimd`, `speculative+streaming@0.5:target`.

    METHOD[+POLICY][+PRESS@SIZE[:ROLES]]

POLICY is a gamma policy. SIZE is the fraction removed or, as `512tokens`, how many entries stay.
ROLES, with `/` between, say whose cache: the target's unless told otherwise. Nothing heavy is
imported here: the command line reads such names too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastinfer.argv import number
from fastinfer.config import GAMMA_POLICIES, PRESS_NAMES, ConfigError
from fastinfer.config.compression import PRESS_FIELDS
from fastinfer.evaluation.names import METHODS

TOKENS = "tokens"
FORM = "METHOD[+POLICY][+PRESS@SIZE[:ROLES]]"


def names_of_methods(text: str) -> tuple[str, ...]:
    """Names with commas between, each at most once; raises `ConfigError`."""
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    for name in names:
        own_options(name)
        if names.count(name) > 1:
            raise ConfigError("methods", f"names {name} twice; once is enough")
    return names


def options_for(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The name's options of `DecodeConfig` on top of those for all methods.

    Of the latter those of compression are left out where the name has no press.
    """
    own = own_options(name)
    fields = () if "press" in own else PRESS_FIELDS.values()
    return {field: value for field, value in options.items() if field not in fields} | own


def own_options(name: str) -> dict[str, Any]:
    """What a name says, as options of `DecodeConfig`, which checks the values; raises `ConfigError`
    where it is not of this form.
    """
    method, *parts = name.split("+")
    if method not in METHODS:
        raise ConfigError("methods", f"must be among {', '.join(METHODS)}, not {method!r}")
    options = dict(METHODS[method])
    for part in parts:
        added = {"gamma_policy": part} if part in GAMMA_POLICIES else _compression(name, part)
        if added.keys() & options.keys():
            raise ConfigError("methods", f"says the same thing twice in {name}; the form is {FORM}")
        options |= added
    return options


def _compression(name: str, part: str) -> dict[str, Any]:
    press, at, rest = part.partition("@")
    size, _, roles = rest.partition(":")
    if not at or press not in PRESS_NAMES:
        raise ConfigError(
            "methods",
            f"has {part!r} in {name}, neither a gamma policy ({', '.join(GAMMA_POLICIES)}) nor "
            f"PRESS@SIZE with a press of {', '.join(PRESS_NAMES)}",
        )
    options: dict[str, Any] = {"press": press, "press_on": (roles or "target").replace("/", ",")}
    if size.endswith(TOKENS):
        return options | {"max_cache_tokens": number(size.removesuffix(TOKENS))}
    return options | {"compression_ratio": number(size)}
