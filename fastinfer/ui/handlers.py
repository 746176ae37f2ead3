"""What happens when Generate is pressed: form -> config -> engine thread -> growing JSONL text."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator
from html import escape
from typing import Any

import gradio as gr

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.ui.form import form_to_config
from fastinfer.ui.records import Recorder
from fastinfer.ui.run import Message, Runs, TextEngine
from fastinfer.ui.throttle import Worker

log = logging.getLogger(__name__)


class GenerateHandler:
    """Serves the Generate tab on one engine, one run at a time."""

    def __init__(self, engine: TextEngine) -> None:
        self._engine = engine
        self._runs = Runs(engine)
        self._worker: Worker[Message] = Worker()

    def generate(self, prompt: str | None, *values: Any) -> Generator[Any, None, None]:
        """Yield the view's value as it grows. Closing it stops the engine within a round.

        A bad value becomes a toast and leaves form and view as they are.
        """
        try:
            config = form_to_config(values)
            self._engine.check(prompt or "", config)
        except ConfigError as error:
            _refuse(error)
            yield gr.skip()
            return
        yield from self._lines(prompt or "", config)

    def _lines(self, prompt: str, config: DecodeConfig) -> Generator[str, None, None]:
        recorder = Recorder(config)
        value = recorder.open(uuid.uuid4().hex, prompt)
        yield value
        batches = self._worker.batches(self._runs.messages(prompt, config))
        try:
            for batch in batches:
                if batch:
                    value += "".join(map(recorder.add, batch)) + recorder.figures()
                yield value
        except ConfigError as error:
            yield value + recorder.failed(f"Refused: {error}")
            _refuse(error)
        except Exception as error:
            log.exception("the run broke off")
            yield value + recorder.failed(f"The run broke off: {type(error).__name__}")
            raise gr.Error(
                f"The run broke off ({type(error).__name__}); the log has the details.",
                print_exception=False,
            ) from error
        finally:
            batches.close()


def _refuse(error: ConfigError) -> None:
    # Toasts are drawn as HTML, and the message may quote what was typed.
    gr.Warning(escape(str(error)), title="Not started")
