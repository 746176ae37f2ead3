"""What the measuring tabs need beside a stream: the engine itself, when the turn is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from fastinfer.engine import Engine
from fastinfer.shelf import EngineShelf


class Place(Protocol):
    """A place in a queue."""

    turn: Future[None]  # done when it is this one's turn

    def leave(self) -> None:
        """Give up the turn, or the place."""
        ...


class Queue(Protocol):
    """The part of `fastinfer.http.line.Line` that the page needs."""

    def join(self, *, always: bool = False) -> Place:
        """A place at the end; `always` where there is no room too."""
        ...


@dataclass(frozen=True, kw_only=True)
class Backstage:
    """The shelf with the engine in use, and the line that page and API share."""

    shelf: EngineShelf
    line: Queue

    @contextmanager
    def turn(self) -> Iterator[Engine]:
        """The engine in use, once the turn has come; then the next in line has it."""
        place = self.line.join(always=True)
        try:
            place.turn.result()
            yield self.shelf.engine
        finally:
            place.leave()
