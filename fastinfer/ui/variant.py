"""One configuration in a few fields: a method, a press, and a box for any other option by name."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from fastinfer.config import DEFAULT_RATIO, PRESS_NAMES, ConfigError
from fastinfer.evaluation.names import METHODS
from fastinfer.events import Role

# The benchmark's names of methods, as the page writes them.
KINDS: Mapping[str, str] = {
    "autoregressive": "Autoregressive",
    "speculative": "Speculative",
    "prompt-lookup": "Prompt lookup",
    "cascade": "Cascade",
}
NO_PRESS = "none"
NUM_FIELDS = 5


@dataclass(frozen=True, kw_only=True)
class Variant:
    """What a visitor chose: a name for it, and options under their flat names."""

    name: str
    options: dict[str, Any]


def kinds_for(roles: Collection[Role], *, drafting: bool = False) -> dict[str, str]:
    """The methods that these models allow; `drafting`: those that verify something."""
    needs = {"speculative": Role.DRAFT, "cascade": Role.INTERMEDIATE}
    return {
        kind: name
        for kind, name in KINDS.items()
        if needs.get(kind, Role.TARGET) in roles and not (drafting and kind == "autoregressive")
    }


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


def variant_fields(
    name: str, roles: Collection[Role], kinds: Mapping[str, str], value: str
) -> list[Component]:
    """Build the fields; their values are what `read_variant` takes, in order."""
    on = [role.value for role in (Role.DRAFT, Role.INTERMEDIATE, Role.TARGET) if role in roles]
    kind = gr.Dropdown(
        [(label, key) for key, label in kinds.items()], value=value, label="Method",
        elem_id=f"{name}-method",
    )  # fmt: skip
    with gr.Row():
        press = gr.Dropdown(
            [NO_PRESS, *PRESS_NAMES], value=NO_PRESS, label="Press", min_width=90,
            elem_id=f"{name}-press",
        )  # fmt: skip
        press_on = gr.Dropdown(
            on, value=on[0], label="on the", min_width=90, elem_id=f"{name}-press-on"
        )
        ratio = gr.Number(
            DEFAULT_RATIO, label="removes", step=0.05, min_width=80, elem_id=f"{name}-ratio"
        )
    more = gr.Textbox(
        "", label="Other options", placeholder="gamma_policy = constant", lines=1, max_lines=4,
        info="One a line, by their names on the command line.", elem_id=f"{name}-more",
    )  # fmt: skip
    return [kind, press, press_on, ratio, more]


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
