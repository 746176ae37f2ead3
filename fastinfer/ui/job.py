"""What the tabs that decode have in common: a button, a Stop, a place in the queue, and a view."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, TypeVar

import gradio as gr
from gradio.components import Component

from fastinfer.config import ConfigError
from fastinfer.models.devices import core_leaver
from fastinfer.ui.labels import field_name
from fastinfer.ui.report import Report
from fastinfer.ui.space import Duration, gpu, on_space
from fastinfer.ui.stream_view import over_js
from fastinfer.ui.throttle import Worker
from fastinfer.ui.words import word

log = logging.getLogger(__name__)

PRIVATE: Literal["private"] = "private"  # no event of the page is part of the API
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": PRIVATE}
ENGINE_QUEUE = "engine"  # every event that decodes shares this queue, so one runs at a time

T = TypeVar("T")
Values = Generator[str, None, None]


@dataclass(frozen=True, kw_only=True)
class Start:
    """A button and what it begins. `check` raises gr.Error for a slip in the form, at once."""

    button: gr.Button
    check: Callable[..., object]
    run: Callable[..., Values]
    duration: Duration


@dataclass(frozen=True, kw_only=True)
class Job:
    """The parts of a tab that measures."""

    starts: tuple[Start, ...]
    stop: gr.Button
    status: gr.Markdown  # where the place in the queue shows
    inputs: Sequence[Component]
    view: gr.HTML

    def wire(self) -> None:
        """Connect the events, in the current Blocks."""
        buttons = [*(start.button for start in self.starts), self.stop]
        runs = [self._wire_start(start, buttons) for start in self.starts]
        # Failure fires after an error and after Stop; `then` fires after no error (gradio 6.31).
        for run in runs:
            for after in (run.success, run.failure):
                after(
                    self._idle, None, buttons, queue=False,
                    js=over_js(self.view.elem_id or ""), **QUIET,
                )  # fmt: skip
        self.stop.click(self._idle, None, buttons, cancels=runs, queue=False, **QUIET)

    def _wire_start(self, start: Start, buttons: list[gr.Button]) -> Any:
        def begin(*given: Any) -> list[dict[str, Any]]:
            # A slip shows at once, however long the queue. (With queue=False no toast would show.)
            start.check(*given)
            return [gr.update(interactive=False)] * len(self.starts) + [gr.update(interactive=True)]

        busy = start.button.click(
            begin, list(self.inputs), buttons, concurrency_limit=None, **QUIET
        )
        return busy.success(
            gpu(start.run, start.duration),
            list(self.inputs),
            self.view,
            # The place in the queue shows in the status line, and nothing covers the view.
            show_progress="minimal",
            show_progress_on=[self.status],
            concurrency_id=ENGINE_QUEUE,
            concurrency_limit=1,
            api_visibility=PRIVATE,
        )

    def _idle(self) -> list[dict[str, Any]]:
        return [gr.update(interactive=True)] * len(self.starts) + [gr.update(interactive=False)]


def buttons(start: str, name: str, *more: str) -> tuple[list[gr.Button], gr.Button, gr.Markdown]:
    """The starting buttons, Stop, and the line below them. Words by key; `name` begins the ids."""
    with gr.Row(elem_classes="fi-buttons"):
        begins = [
            gr.Button(
                word(f"group_{key}"), variant="secondary" if index else "primary", min_width=100,
                elem_id=f"{name}-start" + (f"-{index + 1}" if index else ""),
            )
            for index, key in enumerate((start, *more))
        ]  # fmt: skip
        stop = gr.Button(
            word("group_stop_run"), variant="stop", interactive=False, min_width=80,
            elem_id=f"{name}-stop",
        )  # fmt: skip
    status = gr.Markdown("", elem_classes="fi-job-status", min_height=18)
    return begins, stop, status


def page_worker() -> Worker[Any]:
    """A worker for jobs that a browser shows: it has a core for itself, unless this is a Space."""
    return Worker(around=nullcontext if on_space() else core_leaver())


def play(
    worker: Worker[T],
    job: Generator[T, None, None],
    first: str,
    paint: Callable[[T], str],
    failed: Callable[[str], str],
) -> Values:
    """A view's values while a job runs in a thread of its own; closing this stops the job.

    What the job raises becomes the view's last value and a toast.
    """
    value = first
    yield value
    batches = worker.batches(job)
    try:
        for batch in batches:
            if batch:
                value = paint(batch[-1])
            yield value
    except ConfigError as error:
        words = config_words(error)
        yield failed(words)
        raise toast(words, "Not measured") from error
    except Exception as error:
        log.exception("a measurement broke off")
        words = f"It broke off: {error}"
        yield failed(words)
        raise toast(words, "Error") from error
    finally:
        batches.close()


def play_report(
    worker: Worker[T], job: Generator[T, None, None], first: Report, paint: Callable[[T], Report]
) -> Values:
    """As `play`, for a view of reports."""
    yield from play(
        worker, job, first.to_json(),
        lambda batch: paint(batch).to_json(),
        lambda words: Report(state="failed", title=words).to_json(),
    )  # fmt: skip


def checked(read: Callable[..., T], *given: Any) -> T:
    """What `read` makes of a form; a `ConfigError` becomes a toast."""
    try:
        return read(*given)
    except ConfigError as error:
        raise toast(config_words(error), "Not started") from error


def config_words(error: ConfigError) -> str:
    """One sentence of a bad value, in the page's names."""
    return f"{field_name(error.field)}: {error.message}"


def toast(words: str, title: str) -> gr.Error:
    """An error to raise. Toasts are drawn as HTML, and the words may quote what was typed."""
    return gr.Error(escape(words), title=title, print_exception=False)
