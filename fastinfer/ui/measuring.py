"""A tab whose job measures on the engine and shows a report: Quality and Benchmark."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from fastinfer.engine import Engine
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.job import Values, checked, page_worker, play_report
from fastinfer.ui.report import Measuring, Report
from fastinfer.ui.throttle import Worker

Asked = TypeVar("Asked")


class MeasuringHandler(Generic[Asked]):
    """Serves such a tab: `read` makes a request of the form, `measure` does it with the engine,
    `report` shows how far it is, `first` what stands there before that."""

    def __init__(
        self,
        backstage: Backstage,
        *,
        read: Callable[..., Asked],
        measure: Callable[[Engine, Asked], Generator[Measuring, None, None]],
        report: Callable[[Measuring], Report],
        first: Report,
    ) -> None:
        self._backstage = backstage
        self._read = read
        self._measure = measure
        self._report = report
        self._first = first
        self._worker: Worker[Measuring] = page_worker()

    def check(self, *values: Any) -> Asked:
        """The form's values, a slip becoming a toast."""
        return checked(self._read, *values)

    def run(self, *values: Any) -> Values:
        """Measure, and show what is known after each part."""
        asked = self.check(*values)
        yield from play_report(self._worker, self._job(asked), self._first, self._report)

    def _job(self, asked: Asked) -> Generator[Measuring, None, None]:
        with self._backstage.turn() as engine:
            yield from self._measure(engine, asked)
