"""A request's own clock: what a reader or another request costs is not on it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class Clock:
    """Runs only inside `with`: slow readers cost nothing, nor does waiting for a turn."""

    def __init__(self, spent: float, turn: threading.Lock) -> None:
        self._spent = spent
        self._turn = turn
        self._begin: float | None = None

    def __enter__(self) -> None:
        self._turn.acquire()
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._halt()
        self._turn.release()

    def _halt(self) -> None:
        assert self._begin is not None, "it runs"
        self._spent += time.perf_counter() - self._begin
        self._begin = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the turn, off the clock."""
        self._halt()
        try:
            yield
        finally:
            self._begin = time.perf_counter()

    def elapsed_ms(self) -> float:
        """Milliseconds on the clock."""
        running = 0.0 if self._begin is None else time.perf_counter() - self._begin
        return (self._spent + running) * 1000.0
