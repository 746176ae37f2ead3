"""A run whose page is stopped, hidden or closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.acts import (
    Open,
    chart,
    enabled,
    run,
    set_number,
    spans,
    text_of,
    wait_for_state,
    wait_for_tokens,
)
from tests.browser.harness import Site, Visit
from tests.http_server import wait_until

pytestmark = pytest.mark.browser

ROUND_S = 0.1

# Chromium without a window shows every page, so the test does what a browser does to a hidden one:
# it says so, and gives it no frames.
HIDE = """() => {
  window.shown = window.requestAnimationFrame;
  window.requestAnimationFrame = () => 0;
  Object.defineProperty(document, 'hidden', {configurable: true, get: () => true});
  Object.defineProperty(document, 'visibilityState', {configurable: true, get: () => 'hidden'});
  document.dispatchEvent(new Event('visibilitychange'));
}"""
SHOW = """() => {
  window.requestAnimationFrame = window.shown;
  delete document.hidden;
  delete document.visibilityState;
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def start(opened: Visit, tokens: int) -> None:
    set_number(opened, "max_new_tokens", str(tokens))
    opened.page.click("#generate")
    wait_for_tokens(opened, 5)


def rounds_until_free(site: Site, leave: Callable[[], None], complaint: str) -> int:
    """How many rounds the engine still makes when its reader stops or goes."""
    rounds = site.engine.steps
    before = len(rounds)
    leave()
    wait_until(lambda: site.engine.open_streams == 0, complaint)
    return len(rounds) - before


def test_stop_frees_the_engine_and_the_next_run_starts(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.03
    opened = visit(site.url)
    start(opened, 20000)
    assert enabled(opened, "stop") and not enabled(opened, "generate")
    opened.page.click("#stop")
    wait_until(lambda: site.engine.open_streams == 0, "Stop left the engine running")
    wait_for_state(opened, "stopped")
    opened.page.wait_for_selector("#generate:not([disabled])")
    opened.page.wait_for_selector("#stop[disabled]")
    kept = len(spans(opened))
    assert 5 <= kept < 20000
    assert text_of(opened, "[data-text=phase]") == f"Stopped after {kept} tokens."
    site.engine.pace_s = 0.0
    set_number(opened, "max_new_tokens", "50")
    run(opened)
    assert len(spans(opened)) == 50
    assert enabled(opened, "generate") and not enabled(opened, "stop")


def test_stop_acts_within_a_round(site: Site, visit: Open) -> None:
    site.engine.pace_s = ROUND_S
    opened = visit(site.url)
    start(opened, 20000)
    made = rounds_until_free(
        site, lambda: opened.page.click("#stop"), "Stop left the engine running"
    )
    # The round under way, and what the word takes from the page to the engine: updates are a tenth
    # of a second apart, and a busy machine adds to it.
    assert made <= 1 + 5
    wait_for_state(opened, "stopped")


def test_a_hidden_page_finishes_whole(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.02
    opened = visit(site.url)
    start(opened, 300)
    opened.page.evaluate(HIDE)
    wait_until(lambda: site.engine.open_streams == 0, "the run did not end")
    opened.page.wait_for_selector(".fi-view[data-state=done]", state="attached")
    assert len(spans(opened)) == 300
    opened.page.evaluate(SHOW)
    opened.page.wait_for_function(
        "document.querySelector('[data-chart=gamma]').data[0].x.length > 100"
    )
    ends = [trace["x"][-1] for trace in chart(opened, "gamma") if trace["x"]]
    assert max(ends) >= 290  # in tokens: to the last round


def test_closing_the_page_frees_the_engine_within_a_second(site: Site, visit: Open) -> None:
    site.engine.pace_s = ROUND_S
    opened = visit(site.url)
    start(opened, 20000)
    made = rounds_until_free(site, opened.page.close, "a closed page left the engine running")
    assert made * ROUND_S <= 1.0  # counted in rounds of the engine
