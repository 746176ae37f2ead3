"""The queue in front of the engine: one decodes, some wait in order, the next is refused.

A place holds a `Future`, so that a thread and a coroutine can both wait for their turn.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from fastinfer.config import DecodeConfig
from fastinfer.events import Event

LONGEST_RETRY_S = 60
SMOOTHING = 0.2  # weight of the latest request in the mean time of a turn

InfoT_co = TypeVar("InfoT_co", covariant=True)


class LineFull(Exception):
    """So many wait that one more is refused. `retry_after_s` is a guess at when to come back."""

    def __init__(self, max_waiting: int, retry_after_s: int) -> None:
        super().__init__(
            f"{max_waiting} requests wait already; try again in about {retry_after_s} s"
        )
        self.retry_after_s = retry_after_s


class Place:
    """A place in the line. `turn` is done when it is this one's turn; `leave` when done with it."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.turn: Future[None] = Future()
        self.since = 0.0  # when the turn came

    def leave(self) -> None:
        """Give up the turn, or the place. Calling it again does nothing."""
        self._line._leave(self)


class Line:
    """Gives turns one at a time, first come, first served."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._lock = threading.Lock()
        self._waiting: deque[Place] = deque()
        self._holder: Place | None = None
        self._mean_turn_s = 1.0

    @property
    def num_waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """1 while somebody has the turn."""
        return int(self._holder is not None)

    def join(self, *, always: bool = False) -> Place:
        """A place at the end. Raises `LineFull`, unless it is to be had `always`."""
        place = Place(self)
        with self._lock:
            if self._holder is not None and len(self._waiting) >= self._max_waiting and not always:
                raise LineFull(self._max_waiting, self._retry_after_s())
            self._waiting.append(place)
            self._call_next()
        return place

    def _leave(self, place: Place) -> None:
        with self._lock:
            if self._holder is place:
                held = time.monotonic() - place.since
                self._mean_turn_s += SMOOTHING * (held - self._mean_turn_s)
                self._holder = None
                self._call_next()
            elif place in self._waiting:
                self._waiting.remove(place)

    def _call_next(self) -> None:
        while self._holder is None and self._waiting:
            place = self._waiting.popleft()
            if place.turn.set_running_or_notify_cancel():  # its reader may have gone
                place.since = time.monotonic()
                self._holder = place
                place.turn.set_result(None)

    def _retry_after_s(self) -> int:
        expected = math.ceil(self._mean_turn_s * (1 + len(self._waiting)))
        return min(LONGEST_RETRY_S, max(1, expected))


class StreamingEngine(Protocol[InfoT_co]):
    """What `InLine` stands in front of."""

    @property
    def info(self) -> InfoT_co:
        """What is loaded."""
        ...

    def check(self, prompt: str, config: DecodeConfig) -> object:
        """Raise `ConfigError` for what can be refused before decoding."""
        ...

    def stream(self, prompt: str, config: DecodeConfig) -> Generator[Event, None, None]:
        """Decode."""
        ...


class InLine(Generic[InfoT_co]):
    """An engine whose streams take their turn in a line: what the page uses beside the API.

    A visitor is never refused: the page has a queue of its own, and lets one of it through.
    """

    def __init__(self, engine: StreamingEngine[InfoT_co], line: Line) -> None:
        self._engine = engine
        self._line = line

    @property
    def info(self) -> InfoT_co:
        """What is loaded."""
        return self._engine.info

    def check(self, prompt: str, config: DecodeConfig) -> object:
        """Raise `ConfigError` for what can be refused before decoding."""
        return self._engine.check(prompt, config)

    def stream(self, prompt: str, config: DecodeConfig) -> Generator[Event, None, None]:
        """Decode. The first event waits for the turn; closing the stream frees it."""
        place = self._line.join(always=True)
        try:
            place.turn.result()
            yield from self._engine.stream(prompt, config)
        finally:
            place.leave()
