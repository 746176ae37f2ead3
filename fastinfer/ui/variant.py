"""One configuration in a few fields: a method, a press, and a box for any other option by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.i18n import I18nData

from fastinfer.composition import roles_of
from fastinfer.config import DEFAULT_RATIO, PRESS_NAMES, ConfigError, DecodeConfig
from fastinfer.evaluation.names import METHODS
from fastinfer.events import Role
from fastinfer.ui.labels import CHOICES
from fastinfer.ui.roles import RoleField
from fastinfer.ui.words import field_words, word

# The benchmark's names of methods that the page has words for.
KINDS: Mapping[str, str] = {
    kind: CHOICES[f"kind_{kind}"] for kind in METHODS if f"kind_{kind}" in CHOICES
}
NO_PRESS = "none"
USUAL = ("speculative", "prompt-lookup")  # what a form opens with, where the models allow it
NUM_FIELDS = 5


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What a visitor chose: a name for it, and options under their flat names."""

    name: str
    options: dict[str, Any]


def kinds_for(roles: Collection[Role]) -> list[str]:
    """The methods that models of these roles allow."""
    needed = {kind: roles_of(DecodeConfig.from_mapping(METHODS[kind])) for kind in KINDS}
    return [kind for kind, needs in needed.items() if set(needs) <= set(roles)]


def drafting_kinds(roles: Collection[Role]) -> list[str]:
    """Those of them that verify something."""
    return [kind for kind in kinds_for(roles) if kind != "autoregressive"]


def read_variant(
    kind: str, press: str, press_on: str, ratio: float | None, more: str | None
) -> Variant:
    """The fields as options. Raises `ConfigError`."""
    if kind not in KINDS:
        raise ConfigError("method", f"must be one of {', '.join(KINDS)}, not {kind!r}")
    options = dict(METHODS[kind])
    name = KINDS[kind]
    if press != NO_PRESS:
        options |= {"press": press, "press_on": press_on}
        options["compression_ratio"] = DEFAULT_RATIO if ratio is None else ratio
        name += f" + {press} on the {press_on}"
    return Variant(name=name, options=options | read_options(more or ""))


def read_options(text: str) -> dict[str, Any]:
    """Lines of `name = value` as a mapping; raises `ConfigError` for a line of another form."""
    options: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise ConfigError("options", f"must be lines of name = value, not {line.strip()!r}")
        options[name.replace("-", "_")] = _value(value)
    return options


def _value(text: str) -> Any:
    """A number, true or false where it is one, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


@dataclass(frozen=True, kw_only=True)
class VariantFields:
    """The fields of one configuration."""

    inputs: tuple[Component, ...]  # their values are what `read_variant` takes, in order
    following: tuple[RoleField, ...]  # those that depend on the models


def variant_fields(
    name: str,
    roles: set[Role],
    kinds: Callable[[set[Role]], Sequence[str]],
    *,
    value: str | None = None,
    label: str = "kind",
) -> VariantFields:
    """Build the fields in the current column; `kinds` says which methods models of some roles
    allow, `value` is the one to open with, `label` the key of the first field's words."""

    def methods(roles: set[Role]) -> list[tuple[I18nData, str]]:
        return [(word(f"choice_kind_{key}"), key) for key in kinds(roles)]

    offered = [key for _, key in methods(roles)]
    opening = value or next(each for each in USUAL if each in offered)
    kind = gr.Dropdown(
        methods(roles), value=opening, **field_words(label), elem_id=f"{name}-method"
    )  # fmt: skip
    press = gr.Dropdown(
        [NO_PRESS, *PRESS_NAMES],
        value=NO_PRESS,
        **field_words("kind_press"),
        elem_id=f"{name}-press",
    )
    with gr.Row():
        press_on = gr.Dropdown(
            acting(roles), value=acting(roles)[0][1], **field_words("kind_press_on"), min_width=110,
            elem_id=f"{name}-press-on",
        )  # fmt: skip
        ratio = gr.Number(
            DEFAULT_RATIO, **field_words("kind_ratio"), step=0.05, min_width=110,
            elem_id=f"{name}-ratio",
        )  # fmt: skip
    more = gr.Textbox(
        "", **field_words("kind_more"), placeholder="gamma_policy = constant", lines=1, max_lines=4,
        elem_id=f"{name}-more",
    )  # fmt: skip
    return VariantFields(
        inputs=(kind, press, press_on, ratio, more),
        following=(
            RoleField(field=kind, choices=methods, preferred=USUAL),
            RoleField(field=press_on, choices=acting),
        ),
    )


def acting(roles: set[Role]) -> list[tuple[str, str]]:
    """The models that a press can act on, the smallest first."""
    order = (Role.DRAFT, Role.INTERMEDIATE, Role.TARGET)
    return [(role.value, role.value) for role in order if role in roles]


def whole(value: Any) -> Any:
    """A browser has one kind of number, so 4 may arrive as 4.0; an empty field is not given."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None if value == "" else value


def count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`; raises `ConfigError`."""
    number = whole(value)
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ConfigError(name, f"must be a whole number of {least} or more, not {value}")
    return number


def seed_of(text: str | None) -> int | str | None:
    """A seed typed as text: JavaScript loses digits of a long number."""
    text = (text or "").strip()
    if not text:
        return None
    return int(text) if text.removeprefix("-").isdecimal() else text
