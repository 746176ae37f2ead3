"""The Generate tab: form on the left, live view on the right. Composition and wiring only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import gradio as gr
from gradio.context import Context

from fastinfer.ui.charts import live_charts
from fastinfer.ui.controls import Form, build_form, choices_for, settled
from fastinfer.ui.form import FIELDS
from fastinfer.ui.handlers import GenerateHandler
from fastinfer.ui.link import read_link
from fastinfer.ui.presets import fields_of, load_presets, row_of
from fastinfer.ui.run import TextEngine
from fastinfer.ui.space import gpu, seconds_for
from fastinfer.ui.stream_view import over_js, stream_view
from fastinfer.ui.words import word

PRIVATE: Literal["private"] = "private"  # no event of the page is part of the API
VIEW = "generate-view"
ENGINE_QUEUE = "engine"  # every event that decodes shares this queue, so one runs at a time


def generate_tab(engine: TextEngine) -> None:
    """Build the tab in the current Blocks."""
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
            status = gr.Markdown("", elem_id="status", elem_classes="fi-status", min_height=18)
            form = build_form(prompt, choices)
        with gr.Column(scale=5, min_width=330):
            view = stream_view(live_charts(), VIEW)
    with samples:
        _examples(form, choices)
    _wire(GenerateHandler(engine), form, start, stop, status, view)
    _restore(form, choices)


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


def _restore(form: Form, choices: Mapping[str, tuple[str, ...]]) -> None:
    """A link's values enter the form when the page opens."""

    def restored(fragment: str | None) -> list[dict[str, Any]]:
        given = read_link(fragment or "", choices)
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


def _wire(
    handler: GenerateHandler,
    form: Form,
    start: gr.Button,
    stop: gr.Button,
    status: gr.Markdown,
    view: gr.HTML,
) -> None:
    buttons = [start, stop]

    def begin(*given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        handler.check(*given)
        return _busy()

    # A slip shows at once, however long the engine's queue. (With queue=False no toast would show.)
    busy = start.click(
        begin,
        form.values,
        buttons,
        concurrency_limit=None,
        show_progress="hidden",
        api_visibility=PRIVATE,
    )
    run = busy.success(
        gpu(handler.generate, _seconds),
        form.values,
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


def _seconds(prompt: str | None, *values: Any) -> int:
    """How long such a run may hold a GPU where one must be asked for; a baseline comes with it."""
    return seconds_for(values[FIELDS.index("max_new_tokens")])


def _busy() -> tuple[dict[str, Any], dict[str, Any]]:
    return gr.update(interactive=False), gr.update(interactive=True)


def _idle() -> tuple[dict[str, Any], dict[str, Any]]:
    return gr.update(interactive=True), gr.update(interactive=False)
