"""The Benchmark tab: methods side by side on the bundled prompts, paired and alternated."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from fastinfer.config import ConfigError
from fastinfer.engine import Engine
from fastinfer.evaluation.benchmark import (
    Plan,
    Runs,
    header,
    single_runs,
    summarise,
    without_baseline,
)
from fastinfer.evaluation.contenders import our_contenders
from fastinfer.evaluation.names import METHODS
from fastinfer.evaluation.prompts import first_tokens, load_prompts
from fastinfer.events import Role
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.benchmark_report import report
from fastinfer.ui.job import Job, Start, buttons
from fastinfer.ui.measuring import MeasuringHandler
from fastinfer.ui.report import Measuring, Report
from fastinfer.ui.report_view import report_view
from fastinfer.ui.roles import RoleField
from fastinfer.ui.run import TextEngine
from fastinfer.ui.space import LONGEST_SECONDS
from fastinfer.ui.variant import count, kinds_for, read_options
from fastinfer.ui.words import field_words, word

VIEW = "benchmark-view"
UNCACHED = "autoregressive-uncached"
INTRO = (
    "Every method gets the same prompts, lengths and seeds; the order turns round from prompt to "
    "prompt, and ratios are taken within a round."
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to measure."""

    methods: tuple[str, ...]
    prompts: tuple[str, ...]
    prompt_tokens: int
    max_new_tokens: int
    repeats: int
    temperature: float
    options: dict[str, Any]


def read_form(
    methods: list[str],
    prompts: list[str],
    prompt_tokens: Any,
    max_new_tokens: Any,
    repeats: Any,
    temperature: Any,
    more: str | None,
) -> Asked:
    """The form's values; raises `ConfigError`."""
    if not methods:
        raise ConfigError("methods", f"must be one or more of {', '.join(METHODS)}")
    if not prompts:
        raise ConfigError("prompts", "must be one or more of the bundled ones")
    numbers = {
        name: count(name, value)
        for name, value in (
            ("prompt_tokens", prompt_tokens), ("max_new_tokens", max_new_tokens),
            ("repeats", repeats),
        )
    }  # fmt: skip
    # In the benchmark's own order, with what ratios are to first.
    return Asked(
        methods=tuple(name for name in METHODS if name in methods),
        prompts=tuple(prompts),
        temperature=0.0 if temperature is None else temperature,
        options=read_options(more or ""),
        **numbers,
    )


def measure(engine: Engine, asked: Asked) -> Generator[Measuring, None, None]:
    """All runs, one by one; the document is that of the command `bench`."""
    texts = [prompt for prompt in load_prompts("examples") if prompt.name in asked.prompts]
    ids, notes = first_tokens(texts, engine.encode, asked.prompt_tokens)
    notes += without_baseline(asked.methods)
    plan = Plan(
        prompts=ids, max_new_tokens=asked.max_new_tokens, repeats=asked.repeats,
        temperature=asked.temperature,
    )  # fmt: skip
    tasks = [plan.task(name, 0) for name in plan.prompts]
    contenders = our_contenders(engine, asked.methods, asked.options, tasks)
    runs: Runs = {contender.name: [] for contender in contenders}
    row = len(plan.prompts) * len(contenders)
    total = row * plan.repeats
    document = None
    yield Measuring(done=0, total=total, document=None)
    for done, (name, measured) in enumerate(single_runs(plan, contenders), start=1):
        runs[name].append(measured)
        if done % row == 0:
            so_far = dataclasses.replace(plan, repeats=done // row)
            document = _document(engine, so_far, asked, notes, runs)
        yield Measuring(done=done, total=total, document=document, finished=done == total)


def _document(
    engine: Engine, plan: Plan, asked: Asked, notes: list[str], runs: Runs
) -> dict[str, Any]:
    head = header(
        engine.info, plan, methods=asked.methods, peers=(), prompt_tokens=asked.prompt_tokens,
        options=asked.options,
    )  # fmt: skip
    return {**head, "notes": notes, "results": summarise(plan, runs)}


def benchmark_handler(backstage: Backstage) -> MeasuringHandler[Asked]:
    """What serves the tab."""
    return MeasuringHandler(
        backstage, read=read_form, measure=measure, report=report,
        first=Report(state="running", title="Warming up", detail="once per method"),
    )  # fmt: skip


def benchmark_tab(engine: TextEngine, backstage: Backstage) -> tuple[RoleField, ...]:
    """Build the tab in the current Blocks; gives the fields that depend on the models."""
    handler = benchmark_handler(backstage)
    with gr.Row(equal_height=False, elem_classes="fi-page"):
        with gr.Column(scale=2, min_width=330, elem_classes="fi-form"):
            methods, prompts = _contenders(set(engine.info.models))
            (start,), stop, status = buttons("measure", "benchmark")
            plan = _plan()
        with gr.Column(scale=5, min_width=330):
            view = report_view(Report(title="Methods side by side", detail=INTRO), VIEW)
    begin = Start(
        button=start, check=handler.check, run=handler.run,
        duration=lambda *values: LONGEST_SECONDS,
    )  # fmt: skip
    inputs = [methods, prompts, *plan]
    Job(starts=(begin,), stop=stop, status=status, inputs=inputs, view=view).wire()
    return (RoleField(field=methods, choices=_methods),)


def _methods(roles: set[Role]) -> list[tuple[str, str]]:
    kinds = kinds_for(roles)
    return [(name, name) for name in METHODS if name in kinds or name == UNCACHED]


def _contenders(roles: set[Role]) -> tuple[Component, Component]:
    names = [prompt.name for prompt in load_prompts("examples")]
    methods = gr.CheckboxGroup(
        _methods(roles), value=kinds_for(roles), label=word("methods"),
        elem_id="benchmark-methods",
    )  # fmt: skip
    prompts = gr.CheckboxGroup(
        names, value=[names[0], names[3]], label=word("prompts"), elem_id="benchmark-prompts"
    )
    return methods, prompts


def _plan() -> list[Component]:
    with gr.Row():
        lead = gr.Number(64, **field_words("lead"), step=1, min_width=110)
        tokens = gr.Number(64, **field_words("exactly"), step=1, min_width=110)
    with gr.Row():
        repeats = gr.Number(
            3, label=word("repeats"), step=1, min_width=110, elem_id="benchmark-repeats"
        )
        temperature = gr.Number(0, label=word("temperature"), step=0.1, min_width=110)
    more = gr.Textbox(
        "", **field_words("bench_more"), placeholder="gamma_policy = constant", lines=1,
        max_lines=4,
    )  # fmt: skip
    return [lead, tokens, repeats, temperature, more]
