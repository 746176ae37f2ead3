"""The measuring tabs in Chromium: what is recorded is what is replayed, and the queue is shared."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import pytest

from tests.browser.acts import SLOW_MS, faint_words, in_theme, press, show_tab, wait_for
from tests.browser.fake_engine import TRAPS, origins_of
from tests.browser.harness import Site, Visit
from tests.http_server import wait_until

pytestmark = pytest.mark.browser

Open = Callable[..., Visit]
NASTY = '${x} {{x}} <img src=x onerror="window.pwned=1"> `${console.error(1)}` 🌊 海は שלום'
COMPARE = "#compare-view .fi-compare"


def columns(visit: Visit) -> list[list[dict[str, str]]]:
    found: list[list[dict[str, str]]] = visit.page.eval_on_selector_all(
        f"{COMPARE} .fi-column",
        "all => all.map(c => [...c.querySelectorAll('.fi-token')].map(s =>"
        " ({text: s.textContent, classes: s.className, children: s.childElementCount})))",
    )
    return found


def compare(visit: Visit, tokens: int = 40) -> None:
    visit.page.fill("#compare-tokens input", str(tokens))
    press(visit, "compare-start")
    wait_for(visit, "compare-view", "done")


def to_the_end(visit: Visit) -> None:
    visit.page.eval_on_selector(
        f"{COMPARE} input[type=range]",
        "node => { node.value = 1000; node.dispatchEvent(new Event('input')); }",
    )


def unseen(visit: Visit) -> int:
    return len(visit.page.query_selector_all(f"{COMPARE} .fi-later"))


def test_both_columns_hold_every_token_with_its_origin(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    show_tab(opened, "Compare", "compare-view")
    opened.page.fill("#compare-prompt textarea", NASTY)
    compare(opened)
    first, second = columns(opened)
    words = list(islice(cycle(TRAPS), 40))
    for column, method in ((first, "autoregressive"), (second, "speculative")):
        assert [span["text"] for span in column] == words
        expected = [f"fi-{origin}" for origin in origins_of(method, 40)]
        assert [span["classes"].split()[1] for span in column] == expected
        assert not any(span["children"] for span in column)
    assert opened.page.text_content(f"{COMPARE} .fi-column .fi-prompt") == NASTY
    assert opened.page.evaluate("window.pwned") is None
    verdict = opened.page.text_content(f"{COMPARE} .fi-verdict[data-tone=good]") or ""
    assert "A and B gave the same text" in verdict


def test_the_replay_follows_the_recorded_times(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    show_tab(opened, "Compare", "compare-view")
    compare(opened, tokens=60)
    to_the_end(opened)
    assert unseen(opened) == 0
    counts = opened.page.eval_on_selector_all(
        f"{COMPARE} .fi-count", "all => all.map(node => node.textContent)"
    )
    assert all(text.startswith("60 of 60 tokens after ") for text in counts)
    # At a third of the longest time the slower column has shown what its engine had then.
    shown = opened.page.evaluate(
        f"""() => {{
          const range = document.querySelector('{COMPARE} input[type=range]');
          range.value = 333; range.dispatchEvent(new Event('input'));
          return [...document.querySelectorAll('{COMPARE} .fi-column')].map(c =>
            c.querySelectorAll('.fi-token:not(.fi-later)').length);
        }}"""
    )
    end = 20.0 + 10.0 * 59  # the fake engine's clock: a token a round for the baseline
    baseline = sum(20.0 + 10.0 * i <= end * 0.333 for i in range(60))
    assert shown[0] == baseline < shown[1]
    label = opened.page.text_content(f"{COMPARE} [data-part=title]") or ""
    assert label.startswith("Replay")


def test_a_third_column_and_again_for_a_spread(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    show_tab(opened, "Compare", "compare-view")
    opened.page.click("#compare-third button")
    opened.page.click("#compare-c-method input")
    opened.page.get_by_role("option", name="Cascade").click()
    opened.page.fill("#compare-tokens input", "20")
    press(opened, "compare-start-2")
    wait_for(opened, "compare-view", "done")
    assert len(columns(opened)) == 3
    text = opened.page.text_content(f"{COMPARE} .fi-verdict") or ""
    assert "5 paired runs" in text and "C · Cascade" in text


def test_a_comparison_opened_late_is_whole_and_its_chart_wide(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.02
    opened = visit(site.url)
    show_tab(opened, "Compare", "compare-view")
    opened.page.fill("#compare-tokens input", "40")
    press(opened, "compare-start")
    wait_for(opened, "compare-view", "running")
    opened.page.get_by_role("tab", name="Models", exact=True).click()
    wait_for(opened, "compare-view", "done")
    opened.page.get_by_role("tab", name="Compare", exact=True).click()
    opened.page.wait_for_function(
        f"document.querySelector('{COMPARE} [data-chart] svg.main-svg')?.clientWidth > 500"
    )
    assert [len(column) for column in columns(opened)] == [40, 40]


def test_tabs_wait_in_one_queue_and_a_closed_page_frees_it_at_once(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.05
    first, second = visit(site.url), visit(site.url)
    show_tab(first, "Compare", "compare-view")
    first.page.fill("#compare-tokens input", "20000")
    press(first, "compare-start")
    first.page.wait_for_function(
        f"document.querySelector('{COMPARE} [data-part=title]').textContent.startsWith('Run 1')"
    )
    press(second, "generate")
    second.page.wait_for_function(
        "document.querySelector('#status').closest('.block, .column').innerText.includes('queue')"
    )
    assert site.engine.most_streams == 1
    running = site.engine.steps
    before = len(running)
    first.page.close()
    # Counted in rounds of the engine, each at least 0.05 s: 20 are a second.
    wait_until(lambda: site.engine.steps is not running, "a closed page kept the engine")
    assert len(running) - before <= 20
    site.engine.pace_s = 0.0
    second.page.wait_for_selector("#generate-view .fi-view[data-state=done]")
    assert site.engine.most_streams == 1


def test_stop_ends_a_comparison_and_keeps_the_last_replay(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    show_tab(opened, "Compare", "compare-view")
    compare(opened, tokens=20)
    site.engine.pace_s = 0.03
    opened.page.fill("#compare-tokens input", "20000")
    press(opened, "compare-start")
    wait_for(opened, "compare-view", "running")
    opened.page.click("#compare-stop")
    wait_until(lambda: site.engine.open_streams == 0, "Stop left the engine running")
    wait_for(opened, "compare-view", "stopped")
    assert [len(column) for column in columns(opened)] == [20, 20]


def test_every_word_of_these_tabs_can_be_read(site: Site, visit: Open) -> None:
    opened = visit(site.url, theme="dark")
    show_tab(opened, "Compare", "compare-view")
    compare(opened, tokens=20)
    to_the_end(opened)
    faint = faint_in_both_themes(opened)
    for name, view in (
        ("Prove it", "proof-view"), ("Quality", "quality-view"), ("Benchmark", "benchmark-view"),
        ("Models", "models-view"),
    ):  # fmt: skip
        show_tab(opened, name, view)
        faint += faint_in_both_themes(opened)
    assert faint == []


def faint_in_both_themes(visit: Visit) -> list[str]:
    """Faint words in the light theme, then in the dark one, which stays."""
    found = []
    for theme in ("light", "dark"):
        in_theme(visit, theme)
        found += [f"{theme}: {words}" for words in faint_words(visit)]
    return found


# --- with the bundled models ----------------------------------------------------------------------


def table(visit: Visit, view: str) -> list[list[str]]:
    rows: list[list[str]] = visit.page.eval_on_selector_all(
        f"#{view} .fi-table tbody tr", "all => all.map(r => [...r.children].map(c => c.innerText))"
    )
    return rows


@pytest.mark.timeout(400)
def test_a_proof_is_green_and_red_for_the_wrong_rule(nano: str, visit: Open) -> None:
    opened = visit(nano)
    show_tab(opened, "Prove it", "proof-view")
    opened.page.fill("#proof-draws input", "1500")
    press(opened, "proof-start")
    opened.page.wait_for_selector("#proof-view .fi-verdict[data-tone=good]", timeout=SLOW_MS)
    assert len(table(opened, "proof-view")) == 10
    opened.page.check("#proof-wrong input")
    press(opened, "proof-start")
    opened.page.wait_for_selector("#proof-view .fi-verdict[data-tone=bad]", timeout=SLOW_MS)


@pytest.mark.timeout(400)
def test_quality_and_benchmark_measure_and_hand_out_json(nano: str, visit: Open) -> None:
    opened = visit(nano)
    show_tab(opened, "Quality", "quality-view")
    opened.page.fill("#quality-windows input", "2")
    opened.page.fill("#quality-context input", "64")
    press(opened, "quality-start")
    wait_for(opened, "quality-view", "done", SLOW_MS)
    assert len(table(opened, "quality-view")) == 10
    assert chart_names(opened, "quality-view") == ["pareto"]
    show_tab(opened, "Benchmark", "benchmark-view")
    opened.page.fill("#benchmark-repeats input", "1")
    press(opened, "benchmark-start")
    wait_for(opened, "benchmark-view", "done", SLOW_MS)
    names = [row[0] for row in table(opened, "benchmark-view")]
    assert names[0] == "autoregressive" and "cascade" in names
    with opened.page.expect_download() as saved:
        opened.page.click("#benchmark-view .fi-links a")
    assert saved.value.suggested_filename == "bench.json"


def chart_names(visit: Visit, view: str) -> Any:
    return visit.page.eval_on_selector_all(
        f"#{view} [data-chart]", "all => all.filter(n => n.data).map(n => n.dataset.chart)"
    )


@pytest.mark.timeout(400)
def test_the_catalogue_marks_what_is_loaded(nano: str, visit: Open) -> None:
    opened = visit(nano, width=390)
    opened.page.click(".overflow-menu > button")  # the tabs that a phone has no room for
    opened.page.locator(".overflow-dropdown button", has_text="Models").click()
    opened.page.wait_for_selector("#models-view .fi-table tbody tr", timeout=SLOW_MS)
    rows = table(opened, "models-view")
    assert rows[0][0] == "nano (loaded)" and len(rows) == 8
    press(opened, "models-start")  # nano again: at once, and nothing changes
    opened.page.wait_for_selector("#models-view .fi-verdict[data-tone=good]", timeout=SLOW_MS)
