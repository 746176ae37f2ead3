"""The form's widgets, in plain groups. What they open with is `form.OPENING`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.i18n import I18nData

from fastinfer.config import (
    DRAFT_KINDS,
    GAMMA_POLICIES,
    INTERMEDIATE_KINDS,
    METHODS,
    MODEL_DRAFTS,
    POSITIONS,
)
from fastinfer.config import RULES as RULE_NAMES
from fastinfer.events import Role
from fastinfer.presses import PRESSES
from fastinfer.ui.form import FIELDS, NO_PRESS, OPENING
from fastinfer.ui.words import word


@dataclass(frozen=True)
class Form:
    """The prompt, and the other fields in the order of `FIELDS`."""

    prompt: gr.Textbox
    fields: tuple[Component, ...]

    @property
    def values(self) -> list[Component]:
        """All of them: what a handler takes."""
        return [self.prompt, *self.fields]


def choices_for(roles: set[Role]) -> dict[str, tuple[str, ...]]:
    """What each choice of the form offers where models of these roles are loaded."""
    draft = tuple(k for k in DRAFT_KINDS if k not in MODEL_DRAFTS or Role.DRAFT in roles)
    middle = Role.INTERMEDIATE in roles
    return {
        # Without a draft model one can still draft by prompt lookup.
        "method": tuple(name for name in METHODS if name != "cascade" or middle),
        "draft": draft,
        "intermediate": tuple(k for k in INTERMEDIATE_KINDS if k != "model" or middle),
        "rule": RULE_NAMES,
        "gamma_policy": GAMMA_POLICIES,
        "press": (NO_PRESS, *PRESSES),
        "press_on": tuple(role.value for role in Role)[::-1],
        "press_positions": POSITIONS,
    }


def labelled_choices(name: str, roles: set[Role]) -> list[tuple[str | I18nData, str]]:
    """What one of them offers, with the words that it is shown by."""
    offered = choices_for(roles)[name]
    return [(_choice(name, value), value) for value in offered]


def settled(values: dict[str, Any], choices: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The values, and where one isn't offered here the nearest that is."""

    def offered(name: str, value: Any) -> Any:
        if name not in choices or isinstance(value, list) or value in choices[name]:
            return value
        return choices[name][-1 if name == "method" else 0]

    return {name: offered(name, value) for name, value in values.items()}


def build_form(prompt: gr.Textbox, choices: dict[str, tuple[str, ...]]) -> Form:
    """Build the groups in the current column."""
    make = Maker(choices)
    named: dict[str, Component] = {"method": make.method()}
    named |= make.basics() | make.drafting() | make.cache() | make.sampling()
    return Form(prompt=prompt, fields=tuple(named[name] for name in FIELDS))


class Maker:
    """Makes widgets that open with what the form opens with, where that is offered."""

    def __init__(self, choices: dict[str, tuple[str, ...]]) -> None:
        self._choices = choices
        self._opening = settled(OPENING, choices)

    def method(self) -> gr.Radio:
        """Which models take part."""
        pairs = [(_choice("method", name), name) for name in self._choices["method"]]
        return gr.Radio(pairs, **self._common("method"))

    def basics(self) -> dict[str, Component]:
        """What everybody sets."""
        with gr.Row():
            return {
                "max_new_tokens": self._number("max_new_tokens"),
                "temperature": self._number("temperature", step=0.1),
                "seed": self._typed("seed", placeholder="fresh"),
            }

    def drafting(self) -> dict[str, Component]:
        """Who drafts, how far, and who stands for it."""
        made: dict[str, Component] = {}
        with gr.Accordion(word("group_drafting"), open=False, elem_id="drafting"):
            made["draft"] = self._radio("draft")
            made["intermediate"] = self._radio("intermediate")
            with gr.Row():
                made["gamma_policy"] = self._dropdown("gamma_policy", min_width=110)
                made["gamma"] = self._number("gamma")
            with gr.Row():
                made["gamma_min"] = self._typed("gamma_min")
                made["gamma_max"] = self._number("gamma_max")
                made["gamma_threshold"] = self._number("gamma_threshold", step=0.05)
            with gr.Row():
                made["inner_gamma"] = self._typed("inner_gamma")
                made["rounds"] = self._number("rounds")
            made["rule"] = self._radio("rule")
        return made

    def cache(self) -> dict[str, Component]:
        """Which press, how much it keeps, when, of whom."""
        made: dict[str, Component] = {}
        with gr.Accordion(word("group_cache"), open=False, elem_id="cache"):
            pairs = [(_press_line(name), name) for name in self._choices["press"]]
            made["press"] = gr.Dropdown(pairs, **self._common("press"))
            with gr.Row():
                made["compression_ratio"] = self._number("compression_ratio", step=0.05)
                made["max_cache_tokens"] = self._typed("max_cache_tokens", placeholder="off")
                made["press_interval"] = self._typed("press_interval", placeholder="off")
            made["press_on"] = gr.CheckboxGroup(
                list(self._choices["press_on"]), **self._common("press_on")
            )
            made["press_positions"] = self._radio("press_positions")
            with gr.Row():
                made["press_sinks"] = self._number("press_sinks")
                made["shadow_every"] = self._number("shadow_every", min_width=160)
        return made

    def sampling(self) -> dict[str, Component]:
        """Filters of the law, and what ends a run."""
        made: dict[str, Component] = {}
        with gr.Accordion(word("group_sampling"), open=False, elem_id="sampling"):
            with gr.Row():
                made["top_k"] = self._number("top_k")
                made["top_p"] = self._number("top_p", step=0.05)
                made["min_p"] = self._number("min_p", step=0.05)
            with gr.Row():
                made["typical_p"] = self._number("typical_p", step=0.05)
                made["repetition_penalty"] = self._number("repetition_penalty", step=0.05)
            made["stop"] = gr.Textbox(
                **self._common("stop") | {"elem_id": "stop_texts"}, lines=1, max_lines=4
            )
        return made

    def _common(self, name: str) -> dict[str, Any]:
        return {
            "value": self._opening[name],
            "label": word(name),
            "info": word(f"{name}_help"),
            "elem_id": name,
        }

    def _radio(self, name: str) -> gr.Radio:
        return gr.Radio(list(self._choices[name]), **self._common(name))

    def _dropdown(self, name: str, min_width: int) -> gr.Dropdown:
        return gr.Dropdown(list(self._choices[name]), **self._common(name), min_width=min_width)

    def _number(self, name: str, step: float = 1, min_width: int = 90) -> gr.Number:
        # No minimum or maximum: DecodeConfig says what is allowed, and names the field.
        return gr.Number(**self._common(name), step=step, min_width=min_width)

    def _typed(self, name: str, placeholder: str = "auto") -> gr.Textbox:
        """A number that may be left out."""
        return gr.Textbox(**self._common(name), placeholder=placeholder, min_width=90)


def _choice(name: str, value: str) -> str | I18nData:
    return word(f"choice_method_{value}") if name == "method" else value


def _press_line(name: str) -> str:
    return name if name == NO_PRESS else f"{name}: {PRESSES[name].summary}"
