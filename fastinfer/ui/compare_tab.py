"""The Compare tab: the same prompt through two or three configurations, then a replay of both."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from fastinfer.config import RULES, ConfigError, DecodeConfig
from fastinfer.evaluation.comparison import Column, Compared, Progress, compare
from fastinfer.evaluation.parting import Parting, explain
from fastinfer.events import Role, Step
from fastinfer.ui import compare_record
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.compare_record import Result
from fastinfer.ui.job import Job, Start, Values, buttons, checked, page_worker, play
from fastinfer.ui.presets import load_presets
from fastinfer.ui.report_view import scripted_view
from fastinfer.ui.roles import RoleField
from fastinfer.ui.run import TextEngine
from fastinfer.ui.space import seconds_for
from fastinfer.ui.throttle import Worker
from fastinfer.ui.variant import (
    NUM_FIELDS,
    kinds_for,
    read_variant,
    seed_of,
    variant_fields,
    whole,
)
from fastinfer.ui.words import field_words, word

VIEW = "compare-view"
NOBODY = "none"  # no third column
AGAIN = 5

SKELETON = (
    '<section class="fi-view fi-compare" data-state="idle">'
    '<header class="fi-state"><span class="fi-dot"></span><strong data-part="title"></strong>'
    '<span class="fi-run" data-part="detail"></span></header>'
    '<div class="fi-bar" role="progressbar" aria-label="Progress" aria-valuemin="0" '
    'aria-valuemax="100" hidden><i></i></div>'
    '<div class="fi-verdicts"></div>'
    '<div class="fi-player" hidden><button type="button" data-part="play">Pause</button>'
    '<input type="range" min="0" max="1000" value="0" step="1" aria-label="Place in the replay">'
    '<output data-part="clock"></output>'
    '<label><span data-word>Speed</span> <select data-part="speed"><option value="0.25">¼×</option>'
    '<option value="0.5">½×</option><option value="1" selected>1×</option>'
    '<option value="2">2×</option><option value="4">4×</option></select></label></div>'
    '<div class="fi-columns"></div>'
    '<div class="fi-reports" data-count="1"></div>'
    '<p class="fi-summary" role="status" aria-live="polite"></p>'
    "</section>"
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a visitor wants to compare."""

    prompt: str
    columns: tuple[Column, ...]


Message = Progress | Result


class CompareHandler:
    """Serves the Compare tab."""

    def __init__(self, engine: TextEngine, backstage: Backstage) -> None:
        self._engine = engine
        self._backstage = backstage
        self._worker: Worker[Message] = page_worker()

    def read(self, prompt: str | None, *values: Any) -> Asked:
        """The form's values as columns; raises `ConfigError`."""
        asked = read_form(prompt, *values)
        for column in asked.columns:
            self._engine.check(asked.prompt, column.config)
        return asked

    def check(self, *values: Any) -> Asked:
        """As `read`, a slip becoming a toast."""
        return checked(self.read, *values)

    def once(self, *values: Any) -> Values:
        """Each column once."""
        yield from self._play(self.check(*values), 1)

    def again(self, *values: Any) -> Values:
        """Five times each, for a median with its spread."""
        yield from self._play(self.check(*values), AGAIN)

    def _play(self, asked: Asked, repeats: int) -> Values:
        first = compare_record.running(Progress(column=None, done=0, total=1))
        yield from play(
            self._worker, self._job(asked, repeats), first, _paint, compare_record.failed
        )

    def _job(self, asked: Asked, repeats: int) -> Generator[Message, None, None]:
        for message in compare(self._engine, asked.prompt, asked.columns, repeats):
            if isinstance(message, Compared):
                yield self._result(asked.prompt, message)
            else:
                yield message

    def _result(self, prompt: str, compared: Compared) -> Result:
        partings = tuple(self._parting(prompt, compared, i) for i in range(len(compared.against)))
        info = self._engine.info
        return Result(
            prompt=prompt,
            compared=compared,
            partings=partings,
            texts=tuple(_texts(compared, i) for i in range(len(compared.against))),
            dtype=info.dtype,
            device=info.device,
        )

    def _parting(self, prompt: str, compared: Compared, index: int) -> Parting | None:
        place = compared.against[index].first_difference
        column = compared.columns[index + 1]
        if place is None or not column.config.lossless:
            return None
        ours, theirs = compared.recordings[0], compared.recordings[index + 1]
        with self._backstage.turn() as engine:
            ids = engine.check(prompt, column.config)
            return explain(engine, ids, ours.token_ids, theirs.token_ids, place, column.config)


def read_form(prompt: str | None, *values: Any) -> Asked:
    """The form's values, in the order of `compare_tab`'s inputs; raises `ConfigError`."""
    tokens, temperature, seed, rule, *rest = values
    common = {
        "max_new_tokens": whole(tokens),
        "temperature": whole(temperature),
        "seed": seed_of(seed),
        "rule": rule,
    }
    # One seed for all columns: with the coupled rule that makes one text.
    if common["seed"] is None:
        common["seed"] = secrets.randbelow(2**31)
    names, configs = ["Baseline"], [{"method": "autoregressive"}]
    for start in range(0, len(rest), NUM_FIELDS):
        kind, press, press_on, ratio, more = rest[start : start + NUM_FIELDS]
        if kind == NOBODY:
            continue
        variant = read_variant(kind, press, press_on, whole(ratio), more)
        names.append(variant.name)
        configs.append(variant.options)
    columns = tuple(
        Column(
            name=f"{compare_record.LETTERS[index]} · {name}",
            config=DecodeConfig.from_mapping({**common, **options}),
        )
        for index, (name, options) in enumerate(zip(names, configs, strict=True))
    )
    _check_one_task(columns)
    return Asked(prompt=prompt or "", columns=columns)


def _check_one_task(columns: tuple[Column, ...]) -> None:
    """Other options may change the way, never the task."""
    first = columns[0].config
    for column in columns[1:]:
        for name in ("sampling", "max_new_tokens", "min_new_tokens", "stop", "ignore_eos"):
            if getattr(column.config, name) != getattr(first, name):
                raise ConfigError(
                    "options", f"must not change {name}: it is the same for all columns"
                )


def _texts(compared: Compared, index: int) -> tuple[str, str]:
    """The two tokens where a column's text parts from the first's."""
    place = compared.against[index].first_difference
    pair = (compared.recordings[0], compared.recordings[index + 1])
    first, second = (_text_at(recording.steps, place) for recording in pair)
    return first, second


def _text_at(steps: tuple[Step, ...], place: int | None) -> str:
    tokens = [token for step in steps for token in step.tokens]
    return tokens[place].text if place is not None and place < len(tokens) else ""


def _paint(message: Message) -> str:
    if isinstance(message, Result):
        return compare_record.finished(message)
    return compare_record.running(message)


def compare_tab(engine: TextEngine, backstage: Backstage) -> tuple[RoleField, ...]:
    """Build the tab in the current Blocks; gives the fields that depend on the models."""
    roles = set(engine.info.models)
    handler = CompareHandler(engine, backstage)
    with gr.Row(equal_height=False, elem_classes="fi-page"):
        with gr.Column(scale=2, min_width=330, elem_classes="fi-form"):
            prompt = _prompt()
            begins, stop, status = buttons("compare", "compare", "again")
            task = _task()
            with gr.Group():
                second = variant_fields("compare-b", roles, kinds_for, label="kind_b")
            with gr.Accordion(word("group_third"), open=False, elem_id="compare-third"):
                third = variant_fields(
                    "compare-c", roles, third_kinds, value=NOBODY, label="kind_c"
                )
        with gr.Column(scale=5, min_width=330):
            view = scripted_view(compare_record.opening(), VIEW, SKELETON, "compare_view.js")

    def duration(*values: Any) -> int:
        return seconds_for(values[1], runs=3)

    def longer(*values: Any) -> int:
        return seconds_for(values[1], runs=3 * AGAIN)

    starts = (
        Start(button=begins[0], check=handler.check, run=handler.once, duration=duration),
        Start(button=begins[1], check=handler.check, run=handler.again, duration=longer),
    )
    inputs = [prompt, *task, *second.inputs, *third.inputs]
    Job(starts=starts, stop=stop, status=status, inputs=inputs, view=view).wire()
    return second.following + third.following


def third_kinds(roles: set[Role]) -> list[str]:
    """What a third column can be; none is one of them."""
    return [NOBODY, *kinds_for(roles)]


def _prompt() -> Component:
    return gr.Textbox(
        load_presets()[0].prompt, label=word("prompt"), lines=4, max_lines=8,
        elem_id="compare-prompt",
    )  # fmt: skip


def _task() -> list[Component]:
    with gr.Row():
        tokens = gr.Number(
            160, label=word("max_new_tokens"), step=1, min_width=90, elem_id="compare-tokens"
        )
        temperature = gr.Number(
            0.8, label=word("temperature"), step=0.1, min_width=90, elem_id="compare-temperature"
        )
        seed = gr.Textbox(
            "", label=word("seed"), placeholder="fresh", min_width=90, elem_id="compare-seed"
        )
    rule = gr.Radio(
        list(RULES)[::-1], value="coupled", **field_words("compare_rule"), elem_id="compare-rule"
    )
    return [tokens, temperature, seed, rule]
