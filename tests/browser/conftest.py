"""Chromium and a site to visit. Skips, with a reason, where no Chromium is found."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fastinfer.engine import load
from tests.browser.acts import Open, run
from tests.browser.fake_engine import FakeEngine
from tests.browser.harness import FinishedRun, Site, Visit, serving
from tests.http_server import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No sandbox: containers run as root. The rest keeps Chromium itself from calling home.
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
TIMEOUT_MS = 30_000  # a busy machine is slow, and nothing here waits for it in vain


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium found (looked for {', '.join(CHROMIUM_NAMES)})")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def fake_site(chromium: Browser) -> Iterator[Site]:
    engine = FakeEngine()
    with serving(engine) as url:
        yield Site(url=url, engine=engine)


@pytest.fixture(scope="session")
def nano(chromium: Browser) -> Iterator[str]:
    """Where the page runs with the bundled models."""
    with serving(load("nano", dtype="float32")) as url:
        yield url


@pytest.fixture
def site(fake_site: Site) -> Iterator[Site]:
    """The fake engine's site, in its first state, and free again afterwards."""
    fake_site.engine.reset()
    yield fake_site
    fake_site.engine.pace_s = 0.0
    wait_until(lambda: fake_site.engine.open_streams == 0, "a run outlived its test")


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """Open a page: `visit(url, theme="dark", width=1280)`. Fails on any error of its scripts."""
    with visiting(chromium) as open_page:
        yield open_page


@pytest.fixture(scope="module")
def finished(chromium: Browser, fake_site: Site) -> Iterator[FinishedRun]:
    """A page with a run on it that is over, for all tests of a module that read it.

    To open a page and run takes five seconds, most of what such a test takes. Who clicks on
    something here, or changes the theme, puts it back.
    """
    fake_site.engine.reset()
    with visiting(chromium) as open_page:
        opened = open_page(fake_site.url)
        run(opened)
        yield FinishedRun(visit=opened, steps=tuple(fake_site.engine.steps))


@contextmanager
def visiting(browser: Browser) -> Iterator[Open]:
    """Pages in a context of their own, which is closed at the end; then what they did is judged."""
    context = browser.new_context()
    context.set_default_timeout(TIMEOUT_MS)
    visits: list[Visit] = []

    def open_page(url: str, theme: str = "light", width: int = 1280, fragment: str = "") -> Visit:
        made = Visit(context.new_page())
        made.watch()
        made.page.set_viewport_size({"width": width, "height": 900})
        made.page.goto(f"{url}/?__theme={theme}{fragment}")
        made.page.wait_for_function(
            "document.querySelector('[data-chart=tpot]')?.data?.length === 3"
        )
        visits.append(made)
        return made

    yield open_page
    context.close()
    for made in visits:
        assert made.errors == []
        assert made.outside == []
