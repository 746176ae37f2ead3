"""Long runs one after another: what they leave behind, and whether the page stays quick."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from fastinfer.ui.throttle import Worker
from tests.browser.acts import Open, run, set_number, spans
from tests.browser.fake_engine import FakeEngine
from tests.browser.harness import Site, Visit, serving

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

pytestmark = pytest.mark.browser

TOKENS = 1500
RUNS = 5
UPDATES_PER_S = 20
ROUND_S = 0.008  # a run of some seven seconds
SHARE = 0.10  # by which a later run may exceed the first
# A fault on any machine. The goal is 200: five runs on two quiet cores had 188 at most, in a
# browser that draws in software beside the server.
LONGEST_TASK_MS = 600


@pytest.fixture
def quick_site(chromium: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A page that updates twice as often as the real one."""
    made = []

    def quick(**options: Any) -> Worker[Any]:
        made.append(Worker[Any](**options, update_s=1 / UPDATES_PER_S))
        return made[-1]

    monkeypatch.setattr("fastinfer.ui.job.Worker", quick)
    engine = FakeEngine(pace_s=ROUND_S)
    with serving(engine) as url:
        assert made, "the page's worker comes from somewhere else now"
        yield Site(url=url, engine=engine)


def left(session: CDPSession) -> dict[str, float]:
    """Nodes, listeners and bytes in use after a collection of garbage."""
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    metrics = session.send("Performance.getMetrics")["metrics"]
    kept = ("Nodes", "JSEventListeners", "JSHeapUsedSize")
    return {m["name"]: m["value"] for m in metrics if m["name"] in kept}


def watch(opened: Visit) -> None:
    """Note updates of the text, and tasks that hold up the page."""
    opened.page.evaluate(
        """() => {
          window.updates = []; window.tasks = [];
          new MutationObserver(() => window.updates.push(performance.now()))
            .observe(document.querySelector('.fi-output'), {childList: true});
          new PerformanceObserver((list) =>
            list.getEntries().forEach((entry) => window.tasks.push(entry.duration)))
            .observe({type: 'longtask'});
        }"""
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_five_runs_leave_what_one_leaves_and_never_hold_up_the_page(
    quick_site: Site, visit: Open
) -> None:
    opened = visit(quick_site.url)
    set_number(opened, "max_new_tokens", str(TOKENS))
    session = opened.page.context.new_cdp_session(opened.page)
    session.send("Performance.enable")
    quick_site.engine.pace_s = 0.0
    run(opened)  # the first drawing of every chart, which is part of loading
    quick_site.engine.pace_s = ROUND_S
    watch(opened)
    measured = []
    chart = "document.querySelector('[data-chart=gamma]')"
    for _ in range(RUNS):
        opened.page.evaluate("document.querySelector('.fi-view').dataset.state = 'idle'")
        opened.page.click("#generate")
        opened.page.wait_for_function(
            "document.querySelectorAll('.fi-token').length < 600"
            " && document.querySelectorAll('.fi-token').length > 20"
        )
        opened.page.evaluate(f"Plotly.relayout({chart}, {{'xaxis.range': [3, 17]}})")
        opened.page.wait_for_selector(".fi-view[data-state=done]", timeout=120_000)
        assert opened.page.evaluate(f"{chart}.layout.xaxis.range") == [3, 17]
        assert len(spans(opened)) == TOKENS
        measured.append(left(session))
    for name, first in measured[0].items():
        assert max(m[name] for m in measured[1:]) <= (1 + SHARE) * first, (name, measured)
    times = opened.page.evaluate("window.updates")
    gaps_ms = [b - a for a, b in pairwise(times) if b - a < 1000]  # within runs
    tasks = opened.page.evaluate("window.tasks")
    assert max(tasks, default=0.0) < LONGEST_TASK_MS, sorted(tasks)[-5:]
    # A browser that draws in software takes fewer than it is offered.
    assert 1000 * len(gaps_ms) / sum(gaps_ms) > UPDATES_PER_S / 4, "it was not put to the test"
