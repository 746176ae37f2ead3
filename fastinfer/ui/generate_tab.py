"""The Generate tab: form on the left, live view on the right. Composition and wiring only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr
from gradio.components import Component

from fastinfer.config import DRAFT_KINDS, GAMMA_POLICIES, METHODS, RULES
from fastinfer.events import Role
from fastinfer.ui.charts import live_charts
from fastinfer.ui.form import FIELDS
from fastinfer.ui.handlers import GenerateHandler
from fastinfer.ui.labels import FIELD_LABELS, METHOD_LABELS
from fastinfer.ui.run import TextEngine
from fastinfer.ui.stream_view import ASSETS, over_js, stream_view

PRIVATE: Literal["private"] = "private"  # no event of the page is part of the API
VIEW = "generate-view"
ENGINE_QUEUE = "engine"  # every event that decodes shares this queue, so one runs at a time


@dataclass(frozen=True)
class Form:
    """The prompt, and the other fields in the order of `FIELDS`."""

    prompt: gr.Textbox
    fields: tuple[Component, ...]


def generate_tab(engine: TextEngine) -> None:
    """Build the tab in the current Blocks."""
    roles = set(engine.info.models)
    with gr.Row(equal_height=False, elem_classes="fi-page"):
        with gr.Column(scale=2, min_width=330, elem_classes="fi-form"):
            prompt = _prompt()
            with gr.Row(elem_classes="fi-buttons"):
                start = gr.Button("Generate", variant="primary", min_width=100, elem_id="generate")
                stop = gr.Button(
                    "Stop", variant="stop", interactive=False, min_width=100, elem_id="stop"
                )
            status = gr.Markdown("", elem_id="status", elem_classes="fi-status", min_height=18)
            named: dict[str, Component] = {"method": _method(roles)}
            named |= _basics() | _drafting(roles) | _sampling()
        with gr.Column(scale=5, min_width=330):
            view = stream_view(live_charts(), VIEW)
    form = Form(prompt=prompt, fields=tuple(named[name] for name in FIELDS))
    _wire(GenerateHandler(engine), form, start, stop, status, view)


def _prompt() -> gr.Textbox:
    examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    prompt = gr.Textbox(
        examples[0]["prompt"],
        label=FIELD_LABELS["prompt"],
        info="The models continue it; they don't answer it.",
        lines=4,
        max_lines=8,
        elem_id="prompt",
    )
    gr.Examples(
        [[example["prompt"]] for example in examples],
        [prompt],
        example_labels=[example["name"] for example in examples],
        cache_examples=False,
        label="Examples",
        api_visibility=PRIVATE,
    )
    return prompt


def _method(roles: set[Role]) -> gr.Radio:
    # Without a draft model one can still draft by prompt lookup.
    available = [name for name in METHODS if name != "cascade" or Role.INTERMEDIATE in roles]
    return gr.Radio(
        [(METHOD_LABELS[name], name) for name in available],
        value=available[-1],
        label=FIELD_LABELS["method"],
        info="All give text of the target's own law.",
        elem_id="method",
    )


def _drafting(roles: set[Role]) -> dict[str, Component]:
    kinds = [kind for kind in DRAFT_KINDS if kind != "model" or Role.DRAFT in roles]
    with gr.Accordion("Drafting", open=False, elem_id="drafting"):
        draft = gr.Radio(
            kinds,
            value=kinds[0],
            label=FIELD_LABELS["draft"],
            info="A small model, or text found earlier in the prompt.",
            elem_id="draft",
        )
        with gr.Row():
            policy = gr.Dropdown(
                list(GAMMA_POLICIES),
                value="cost_aware",
                label=FIELD_LABELS["gamma_policy"],
                info="cost_aware drafts as long as it pays.",
                min_width=110,
                elem_id="gamma_policy",
            )
            gamma = _number("gamma", 4, "Per round.")
        with gr.Row():
            least = _typed("gamma_min", "Empty: policy's.")
            most = _number("gamma_max", 16, "Up to 64.")
            threshold = _number("gamma_threshold", 0.4, "Confidence only.", step=0.05)
        with gr.Row():
            inner = _typed("inner_gamma", "Cascade only.")
            rounds = _number("rounds", 2, "Cascade only.")
        rule = gr.Radio(
            list(RULES),
            value="residual",
            label=FIELD_LABELS["rule"],
            info="Coupled: one seed gives one text, whatever drafts and however γ moves.",
            elem_id="rule",
        )
    return {
        "draft": draft, "rule": rule, "gamma_policy": policy, "gamma": gamma, "gamma_min": least,
        "gamma_max": most, "gamma_threshold": threshold, "inner_gamma": inner, "rounds": rounds,
    }  # fmt: skip


def _basics() -> dict[str, Component]:
    with gr.Row():
        tokens = _number("max_new_tokens", 160, "At most.")
        temperature = _number("temperature", 0.8, "0 is greedy.", step=0.1)
        seed = _typed("seed", "Empty: fresh.", placeholder="fresh")
    return {"max_new_tokens": tokens, "temperature": temperature, "seed": seed}


def _sampling() -> dict[str, Component]:
    with gr.Accordion("More sampling and stop texts", open=False, elem_id="sampling"):
        with gr.Row():
            top_k = _number("top_k", 0, "0 is off.")
            top_p = _number("top_p", 1, "1 is off.", step=0.05)
            min_p = _number("min_p", 0, "0 is off.", step=0.05)
        with gr.Row():
            typical = _number("typical_p", 1, "1 is off.", step=0.05)
            penalty = _number("repetition_penalty", 1, "1 is off.", step=0.05)
        stop = gr.Textbox(
            "",
            label=FIELD_LABELS["stop"],
            info=r"One a line; \n is a line break. The first to appear ends the run.",
            lines=1,
            max_lines=4,
            elem_id="stop_texts",
        )
    return {
        "top_k": top_k, "top_p": top_p, "min_p": min_p, "typical_p": typical,
        "repetition_penalty": penalty, "stop": stop,
    }  # fmt: skip


def _number(name: str, value: float, help: str, step: float = 1) -> gr.Number:
    # No minimum or maximum: DecodeConfig says what is allowed, and names the field.
    return gr.Number(
        value, label=FIELD_LABELS[name], info=help, step=step, min_width=90, elem_id=name
    )


def _typed(name: str, help: str, placeholder: str = "auto") -> gr.Textbox:
    """A number that may be left out."""
    return gr.Textbox(
        "", label=FIELD_LABELS[name], info=help, placeholder=placeholder, min_width=90, elem_id=name
    )


def _wire(
    handler: GenerateHandler,
    form: Form,
    start: gr.Button,
    stop: gr.Button,
    status: gr.Markdown,
    view: gr.HTML,
) -> None:
    buttons = [start, stop]
    values = [form.prompt, *form.fields]

    def begin(*given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        handler.check(*given)
        return _busy()

    # A slip shows at once, however long the engine's queue. (With queue=False no toast would show.)
    busy = start.click(
        begin,
        values,
        buttons,
        concurrency_limit=None,
        show_progress="hidden",
        api_visibility=PRIVATE,
    )
    run = busy.success(
        handler.generate,
        values,
        view,
        # The place in the queue shows in the status line, and nothing covers the text.
        show_progress="minimal",
        show_progress_on=[status],
        concurrency_id=ENGINE_QUEUE,
        concurrency_limit=1,
        api_visibility=PRIVATE,
    )
    # Failure fires after an error and after Stop; `then` fires after no error (gradio 6.31).
    for after in (run.success, run.failure):
        after(
            _idle,
            None,
            buttons,
            js=over_js(VIEW),
            queue=False,
            show_progress="hidden",
            api_visibility=PRIVATE,
        )
    stop.click(
        _idle,
        None,
        buttons,
        cancels=[run],
        queue=False,
        show_progress="hidden",
        api_visibility=PRIVATE,
    )


def _busy() -> tuple[dict[str, Any], dict[str, Any]]:
    return gr.update(interactive=False), gr.update(interactive=True)


def _idle() -> tuple[dict[str, Any], dict[str, Any]]:
    return gr.update(interactive=True), gr.update(interactive=False)
