"""The Generate tab: form on the left, live view on the right. Composition and wiring only."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr
from gradio.context import Context

from fastinfer.events import Role
from fastinfer.ui.charts import live_charts
from fastinfer.ui.controls import Form, build_form, choices_for, labelled_choices, settled
from fastinfer.ui.form import FIELDS
from fastinfer.ui.handlers import GenerateHandler
from fastinfer.ui.job import PRIVATE, Job, Start
from fastinfer.ui.link import read_link
from fastinfer.ui.presets import fields_of, load_presets, row_of
from fastinfer.ui.roles import RoleField, loaded_roles
from fastinfer.ui.run import TextEngine
from fastinfer.ui.space import seconds_for
from fastinfer.ui.stream_view import stream_view
from fastinfer.ui.words import word

VIEW = "generate-view"


def generate_tab(engine: TextEngine) -> tuple[RoleField, ...]:
    """Build the tab in the current Blocks; gives the fields that depend on the models."""
    choices = choices_for(set(engine.info.models))
    with gr.Row(equal_height=False, elem_classes="fi-page"):
        with gr.Column(scale=2, min_width=330, elem_classes="fi-form"):
            prompt = _prompt()
            samples = gr.Column(elem_classes="fi-samples")
            with gr.Row(elem_classes="fi-buttons"):
                start = gr.Button(
                    word("group_generate"), variant="primary", min_width=100, elem_id="generate"
                )
                stop = gr.Button(
                    word("group_stop_run"),
                    variant="stop", interactive=False, min_width=100, elem_id="stop",
                )  # fmt: skip
            status = gr.Markdown("", elem_id="status", elem_classes="fi-job-status", min_height=18)
            form = build_form(prompt, choices)
        with gr.Column(scale=5, min_width=330):
            view = stream_view(live_charts(), VIEW)
    with samples:
        _examples(form, choices)
    handler = GenerateHandler(engine)
    begin = Start(button=start, check=handler.check, run=handler.generate, duration=_seconds)
    Job(starts=(begin,), stop=stop, status=status, inputs=form.values, view=view).wire()
    _restore(form, engine)
    return tuple(
        RoleField(
            field=form.fields[FIELDS.index(name)],
            choices=partial(labelled_choices, name),
            preferred=("cascade", "speculative") if name == "method" else (),
        )
        for name in ("method", "draft", "intermediate")
    )


def _prompt() -> gr.Textbox:
    return gr.Textbox(
        load_presets()[0].prompt,
        label=word("prompt"),
        info=word("prompt_help"),
        lines=4,
        max_lines=8,
        elem_id="prompt",
    )


def _examples(form: Form, choices: dict[str, tuple[str, ...]]) -> None:
    """One click sets the prompt and what shows something with it."""
    presets = load_presets()
    fields = fields_of(presets)
    rows = [
        [preset.prompt, *settled(row_of(preset, fields), choices).values()] for preset in presets
    ]
    gr.Examples(
        rows,
        [form.prompt, *(form.fields[FIELDS.index(name)] for name in fields)],
        example_labels=[preset.name for preset in presets],
        cache_examples=False,
        label=word("group_examples"),
        api_visibility=PRIVATE,
    )


def _restore(form: Form, engine: TextEngine) -> None:
    """A link's values enter the form when the page opens."""

    def restored(fragment: str | None) -> list[dict[str, Any]]:
        given = read_link(fragment or "", choices_for(loaded_roles(engine) or {Role.TARGET}))
        names = ("prompt", *FIELDS)
        return [gr.update(value=given[name]) if name in given else gr.skip() for name in names]

    root = Context.root_block
    assert root is not None, "built inside Blocks"
    root.load(
        restored,
        form.prompt,
        form.values,
        js="() => [location.hash]",
        queue=False,
        show_progress="hidden",
        api_visibility=PRIVATE,
    )


def _seconds(prompt: str | None, *values: Any) -> int:
    """How long such a run may hold a GPU where one must be asked for; a baseline comes with it."""
    return seconds_for(values[FIELDS.index("max_new_tokens")])
