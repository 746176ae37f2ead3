"""Chromium and the app under test, both in this process. Skips where no Chromium is found."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
import uvicorn

import app as app_module
from fastinfer.ui.run import TextEngine
from tests.browser.fake_engine import FakeEngine

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
Browser, Page = playwright_api.Browser, playwright_api.Page

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No sandbox: containers run as root. The rest keeps Chromium itself from calling home.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
TIMEOUT_MS = 20_000  # a busy machine is slow, and nothing here waits for it in vain


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


@contextmanager
def serving(engine: TextEngine) -> Iterator[str]:
    """Run the real app on a free port, in a thread of this process."""
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


def wait_until(condition: Callable[[], bool], complaint: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(complaint)
        time.sleep(0.02)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium found (looked for {', '.join(CHROMIUM_NAMES)})")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def fake_site() -> Iterator[Site]:
    engine = FakeEngine()
    with serving(engine) as url:
        yield Site(url=url, engine=engine)


@pytest.fixture
def site(fake_site: Site) -> Iterator[Site]:
    """The fake engine's site, in its first state, and free again afterwards."""
    fake_site.engine.reset()
    yield fake_site
    fake_site.engine.pace_s = 0.0
    wait_until(lambda: fake_site.engine.open_streams == 0, "a run outlived its test")


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[..., Visit]]:
    """Open a page: `visit(url, theme="dark", width=1280)`. Fails on any error in its console."""
    context = chromium.new_context()
    context.set_default_timeout(TIMEOUT_MS)
    visits: list[Visit] = []

    def open_page(url: str, theme: str = "light", width: int = 1280) -> Visit:
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        made = Visit(page)
        page.on("request", lambda request: _watch(request.url, made.outside))
        page.on("pageerror", lambda error: made.errors.append(str(error)))
        page.goto(f"{url}/?__theme={theme}")
        page.wait_for_function("document.querySelector('[data-chart=tpot]')?.data?.length === 3")
        visits.append(made)
        return made

    yield open_page
    for made in visits:
        assert made.errors == []
    context.close()


def _watch(url: str, outside: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname != "127.0.0.1":
        outside.append(url)
