"""Between the engine and the browser: the engine's own thread, and at most ten updates a second.

The engine never waits for a browser, so what a page costs stays out of the engine's clock.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

UPDATE_S = 0.1  # least time between two batches
HEARTBEAT_S = (
    0.2  # longest silence, so that a stopped or closed page is noticed during a slow round
)


@dataclass(frozen=True)
class _End:
    """The job is over; `error` is what ended it early."""

    error: Exception | None = None


class Worker(Generic[T]):
    """Runs jobs in threads of their own, one job at a time, each within `around()`."""

    def __init__(
        self,
        *,
        update_s: float = UPDATE_S,
        heartbeat_s: float = HEARTBEAT_S,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._turn = threading.Lock()
        self._update_s = update_s
        self._heartbeat_s = heartbeat_s
        self._around = around

    def batches(self, job: Generator[T, None, None]) -> Generator[list[T], None, None]:
        """The job's items in order, grouped; an empty batch means that nothing came for a while.

        Closing this generator ends the job after its current item: the job is then closed in its
        own thread, never in the caller's. An exception of the job is raised here, after its last
        items.
        """
        inbox: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        stop, over = threading.Event(), threading.Event()
        threading.Thread(
            target=self._work, args=(job, inbox, stop, over), name="engine", daemon=True
        ).start()
        try:
            yield from self._grouped(inbox, over)
        finally:
            stop.set()

    def _work(
        self,
        job: Generator[T, None, None],
        inbox: queue.SimpleQueue[T | _End],
        stop: threading.Event,
        over: threading.Event,
    ) -> None:
        error: Exception | None = None
        with self._turn:
            try:
                # A stopped predecessor may still have held the turn while this one was stopped too.
                with self._around(), closing(job):
                    while not stop.is_set():
                        inbox.put(next(job))
            except StopIteration:
                pass
            except Exception as raised:  # handed to the reader, who knows whom to tell
                error = raised
        inbox.put(_End(error))
        over.set()

    def _grouped(
        self, inbox: queue.SimpleQueue[T | _End], over: threading.Event
    ) -> Generator[list[T], None, None]:
        due = 0.0  # the first item goes out at once
        while True:
            # One wake-up for each update: one for each item would take the interpreter away from
            # the engine's thread many times a second.
            over.wait(max(0.0, due - time.monotonic()))
            batch, end = self._taken(inbox)
            if batch or end is None:
                yield batch
                due = time.monotonic() + self._update_s
            if end is not None:
                if end.error is not None:
                    raise end.error
                return

    def _taken(self, inbox: queue.SimpleQueue[T | _End]) -> tuple[list[T], _End | None]:
        """What has come; nothing where nothing comes for a while."""
        batch: list[T] = []
        wait = self._heartbeat_s
        while True:
            try:
                item = inbox.get(timeout=wait) if wait else inbox.get_nowait()
            except queue.Empty:
                return batch, None
            if isinstance(item, _End):
                return batch, item
            batch.append(item)
            wait = 0.0
