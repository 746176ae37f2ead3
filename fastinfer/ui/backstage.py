"""What the measuring tabs need beside a stream: the engine itself, when the turn is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastinfer.engine import Engine
from fastinfer.http.line import Line
from fastinfer.shelf import EngineShelf


@dataclass(frozen=True, kw_only=True)
class Backstage:
    """The shelf with the engine in use, and the line that page and API share."""

    shelf: EngineShelf
    line: Line

    @contextmanager
    def turn(self) -> Iterator[Engine]:
        """The engine in use, once the turn has come; then the next in line has it."""
        place = self.line.join(always=True)
        try:
            place.turn.result()
            yield self.shelf.engine
        finally:
            place.leave()
