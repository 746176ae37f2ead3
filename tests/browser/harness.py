"""The app under test in a thread of this process, and what a visit to it recorded."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import uvicorn

import app as app_module
from fastinfer.ui.run import TextEngine
from tests.browser.fake_engine import FakeEngine

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


@contextmanager
def serving(engine: TextEngine) -> Iterator[str]:
    """Run the real app on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    application = app_module.build_app(engine)  # type: ignore[arg-type]
    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started, "the server did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def wait_until(condition: Callable[[], bool], complaint: str, timeout_s: float = 30.0) -> None:
    """Wait for what another thread brings about, or fail with `complaint`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(complaint)
        time.sleep(0.02)
