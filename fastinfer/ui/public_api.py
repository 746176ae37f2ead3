"""The page's one public endpoint, `/generate`, for gradio's clients.

The buttons' own events stay private: they speak in the form's values and the view's records.
"""

# Not `from __future__ import annotations`: gradio reads the annotations themselves.

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from gradio.events import api

from fastinfer.config import ConfigError, DecodeConfig, Method
from fastinfer.events import Event, Finished, Step
from fastinfer.metrics import RunStats
from fastinfer.ui.job import ENGINE_QUEUE, toast
from fastinfer.ui.run import TextEngine
from fastinfer.ui.space import gpu, seconds_for
from fastinfer.ui.throttle import Worker

log = logging.getLogger(__name__)

DEFAULT = DecodeConfig()
UPDATE_S = 0.2  # a program reads it: half of what the page shows, at half of what telling costs


def public_api(engine: TextEngine) -> None:
    """Add the endpoint to the current Blocks. It waits in the queue of the tabs that decode."""
    api(
        gpu(PublicApi(engine).generate, _seconds),
        api_name="generate",
        concurrency_id=ENGINE_QUEUE,
        concurrency_limit=1,
    )


class PublicApi:
    """Serves the endpoint on one engine."""

    def __init__(self, engine: TextEngine) -> None:
        self._engine = engine
        self._worker: Worker[Event] = Worker(update_s=UPDATE_S)

    def generate(
        self,
        prompt: str,
        method: Method = DEFAULT.method,
        max_new_tokens: int = DEFAULT.max_new_tokens,
        temperature: float = DEFAULT.sampling.temperature,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Continue a prompt. Each value that is streamed is the whole answer so far.

        The last one is the result: `text`, `seed`, and with the end `finish_reason` (eos, stop,
        length or context) and `stats`, the figures that POST /predict gives.

        Parameters:
            prompt: The text to continue.
            method: autoregressive, speculative or cascade.
            max_new_tokens: At most so many tokens.
            temperature: 0 is greedy.
            seed: Repeats a text; without one it is drawn, and told in the answer.
            options: Every other option, named as on the command line with _ for -.
        """
        named = {
            "method": method, "max_new_tokens": max_new_tokens, "temperature": temperature,
            "seed": seed,
        }  # fmt: skip
        try:
            if not isinstance(prompt, str):
                raise ConfigError("prompt", f"must be a text, not {prompt!r}")
            config = _config(named, {**self._engine.info.drafting, **_named(options)})
            self._engine.check(prompt, config)
        except ConfigError as error:
            raise toast(str(error), "Not started") from error
        yield from self._answers(self._engine.stream(prompt, config))

    def _answers(self, events: Generator[Event, None, None]) -> Iterator[dict[str, Any]]:
        answer = _Answer()
        with closing(self._worker.batches(events)) as batches:
            try:
                for batch in batches:
                    for event in batch:
                        answer.add(event)
                    yield answer.to_mapping()
            except Exception as error:
                log.exception("a run of the public endpoint broke off")
                raise toast(f"The run broke off: {error}", "Error") from error


def _config(named: dict[str, Any], more: dict[str, Any]) -> DecodeConfig:
    if twice := sorted(named.keys() & more.keys()):
        raise ConfigError("options", f"must not hold {twice[0]}, which has a place of its own")
    return DecodeConfig.from_mapping({**named, **more})


def _named(options: object) -> dict[str, Any]:
    """The options that are given; null is nothing."""
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ConfigError("options", f"must be an object, not {options!r}")
    return {name: value for name, value in options.items() if value is not None}


class _Answer:
    """A fold of the run's events, of which a part is an answer too."""

    def __init__(self) -> None:
        self._stats = RunStats()
        self._text = ""

    def add(self, event: Event) -> None:
        self._stats.add(event)
        match event:
            case Step():
                self._text += event.text
            case Finished():
                self._text = event.text

    def to_mapping(self) -> dict[str, Any]:
        started, finished = self._stats.started, self._stats.finished
        return {
            "text": self._text,
            "seed": started and started.seed,
            "finish_reason": finished and finished.reason,
            "stats": finished and self._stats.to_mapping(),
        }


def _seconds(prompt: object, method: object = None, max_new_tokens: Any = 0, *_: object) -> int:
    """How long such a run may hold a GPU where one must be asked for."""
    return seconds_for(max_new_tokens)
