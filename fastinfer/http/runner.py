"""From the engine's generator to a coroutine's: one thread decodes, the loop only listens.

The thread runs ahead of the client, so that a slow reader does not hold the turn; what it may run
ahead is bounded by the most tokens of a request.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fastinfer.config import DecodeConfig
from fastinfer.events import Event, Finished, Step
from fastinfer.http.line import Line, Place
from fastinfer.http.metrics import Metrics

if TYPE_CHECKING:
    from fastinfer.info import EngineInfo


class ServedEngine(Protocol):
    """The part of `fastinfer.engine.Engine` that the API needs."""

    @property
    def info(self) -> EngineInfo:
        """Preset, models, device and dtype."""
        ...

    def check(self, prompt: str | Sequence[int], config: DecodeConfig) -> list[int]:
        """The prompt's ids; raises `ConfigError` for what can be refused before decoding."""
        ...

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str | list[int]:
        """The prompt that a chat makes; raises `ConfigError` where the model is no chat model."""
        ...

    def stream(
        self, prompt: str | Sequence[int], config: DecodeConfig
    ) -> Generator[Event, None, None]:
        """Decode. Closing the generator frees all that the run holds."""
        ...


@dataclass(frozen=True)
class _End:
    """The run is over; `error` is what ended it early."""

    error: Exception | None = None


class Runner:
    """Runs requests, each when its turn comes, and on the engine that it began with."""

    def __init__(self, line: Line, metrics: Metrics, max_seconds: float) -> None:
        self._line = line
        self._metrics = metrics
        self._max_seconds = max_seconds
        # One thread for tokenizers, which can't be shared.
        self._checking = ThreadPoolExecutor(1, "checking")

    async def chat_prompt(
        self, engine: ServedEngine, messages: Sequence[Mapping[str, str]]
    ) -> str | list[int]:
        """The prompt that a chat makes; raises `ConfigError`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._checking, engine.chat_prompt, messages)

    async def events(
        self, engine: ServedEngine, prompt: str | Sequence[int], config: DecodeConfig
    ) -> AsyncGenerator[Event, None]:
        """The run's events.

        Raises, before the first one, `ConfigError` and `LineFull`, and later what the engine
        raises. Closing it, waiting or decoding, frees the turn within a round.
        """
        loop = asyncio.get_running_loop()
        ids = await loop.run_in_executor(self._checking, engine.check, prompt, config)
        place = self._line.join()
        try:
            await asyncio.wrap_future(place.turn)
        except BaseException:
            place.leave()
            raise
        inbox: asyncio.Queue[Event | _End] = asyncio.Queue()
        stop = threading.Event()

        def put(item: Event | _End) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(inbox.put_nowait, item)

        stream = functools.partial(self._stream, engine, ids, config)
        # A thread for each turn: one that stayed would slow down all others (models/apart.py).
        threading.Thread(
            target=_work, args=(stream, place, stop, put), name="decoding", daemon=True
        ).start()
        try:
            while not isinstance(item := await inbox.get(), _End):
                yield item
            if item.error is not None:
                raise item.error
        finally:
            stop.set()

    def _stream(
        self, engine: ServedEngine, ids: list[int], config: DecodeConfig
    ) -> Generator[Event, None, None]:
        with closing(engine.stream(ids, config)) as events:
            yield from self._metrics.watch(within(events, self._max_seconds))


def _work(
    stream: Callable[[], Generator[Event, None, None]],
    place: Place,
    stop: threading.Event,
    put: Callable[[Event | _End], None],
) -> None:
    """Decode in this thread, until the end, a stop or an error; then free the turn."""
    error: Exception | None = None
    try:
        with closing(stream()) as events:
            for event in events:
                put(event)
                if stop.is_set():
                    break
    except Exception as raised:  # handed to the reader, who knows whom to tell
        error = raised
    finally:
        place.leave()
        put(_End(error))


def within(events: Iterator[Event], seconds: float) -> Iterator[Event]:
    """The events, cut off by a `Finished` of reason `time` after the round that goes beyond."""
    deadline = time.monotonic() + seconds
    text, num_tokens = "", 0
    for event in events:
        yield event
        if isinstance(event, Step):
            text += event.text
            num_tokens += len(event.tokens)
            if time.monotonic() > deadline:
                yield Finished(
                    reason="time", text=text, num_tokens=num_tokens, elapsed_ms=event.elapsed_ms
                )
                return


async def until_first_step(events: AsyncGenerator[Event, None]) -> list[Event]:
    """The events up to and with the first step: what can fail at once has failed by then."""
    head: list[Event] = []
    async for event in events:
        head.append(event)
        if isinstance(event, Step):
            break
    return head
