"""The app under test in a thread of this process, and what a visit to it recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import app as app_module
from fastinfer.events import Step
from fastinfer.ui.run import TextEngine
from tests.browser.fake_engine import FakeEngine
from tests.http_server import running

if TYPE_CHECKING:
    from playwright.sync_api import Page


@dataclass
class Site:
    """A running app."""

    url: str
    engine: FakeEngine


@dataclass
class Visit:
    """An open page, and what it did that it should not."""

    page: Page
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Note requests that leave this machine, and errors of the page's scripts."""
        self.page.on("request", lambda request: self._requested(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _requested(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
            self.outside.append(url)


@dataclass(frozen=True)
class FinishedRun:
    """A page whose run is over, and the steps that the engine gave it."""

    visit: Visit
    steps: tuple[Step, ...]


@contextmanager
def serving(engine: TextEngine) -> Iterator[str]:
    """Run the real app on a free port."""
    with running(app_module.build_app(engine)) as url:  # type: ignore[arg-type]
        yield url
