"""What happens when Generate is pressed: form -> config -> engine thread -> growing JSONL text."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator
from typing import Any

from fastinfer.config import DecodeConfig
from fastinfer.ui.form import form_to_config
from fastinfer.ui.job import checked, page_worker, toast
from fastinfer.ui.records import Recorder
from fastinfer.ui.run import Message, Runs, TextEngine
from fastinfer.ui.throttle import Worker

log = logging.getLogger(__name__)


class GenerateHandler:
    """Serves the Generate tab on one engine, one run at a time."""

    def __init__(self, engine: TextEngine) -> None:
        self._engine = engine
        self._runs = Runs(engine)
        self._worker: Worker[Message] = page_worker()

    def check(self, prompt: str | None, *values: Any) -> DecodeConfig:
        """The request that the form makes. A bad value becomes a toast, by raising gr.Error."""
        return checked(self._read, prompt or "", *values)

    def generate(self, prompt: str | None, *values: Any) -> Generator[str, None, None]:
        """Yield the view's value as it grows. Closing it stops the engine within a round."""
        config = self.check(prompt, *values)
        recorder = Recorder(config, self._engine.info.backends)
        value = recorder.open(uuid.uuid4().hex, prompt or "")
        yield value
        batches = self._worker.batches(self._runs.messages(prompt or "", config))
        try:
            for batch in batches:
                if batch:
                    value += "".join(map(recorder.add, batch)) + recorder.figures()
                yield value
        except Exception as error:
            log.exception("the run broke off")
            words = f"The run broke off: {error}"
            yield value + recorder.failed(words)
            raise toast(words, "Error") from error
        finally:
            batches.close()

    def _read(self, prompt: str, *values: Any) -> DecodeConfig:
        config = form_to_config(values)
        self._engine.check(prompt, config)
        return config
