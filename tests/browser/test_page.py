"""The page in Chromium: what a visitor sees is what the engine said."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import pytest

from fastinfer.events import Origin
from fastinfer.ui.labels import field_name
from tests.browser.acts import (
    NASTY,
    Open,
    chart,
    contrast,
    counts,
    in_theme,
    run,
    run_again,
    set_number,
    spans,
    text_of,
    wait_for_state,
    wait_for_tokens,
)
from tests.browser.fake_engine import FAKE_SEED, TRAPS, origins_of
from tests.browser.harness import FinishedRun, Site, serving

pytestmark = pytest.mark.browser

NANO = Path(__file__).resolve().parents[2] / "assets" / "models" / "nano"


def test_spans_are_the_tokens_with_their_origins(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    for method in ("autoregressive", "speculative", "cascade"):
        opened.page.check(f"#method input[value={method}]")
        run_again(opened)
        seen = spans(opened)
        assert [s["text"] for s in seen] == list(islice(cycle(TRAPS), 160))
        expected = [f"fi-{origin}" for origin in origins_of(method, 160)]
        assert [s["classes"].split()[1] for s in seen] == expected
        assert all(s["tag"] == "SPAN" and s["children"] == 0 for s in seen)


def test_legend_counts_add_up(finished: FinishedRun) -> None:
    opened = finished.visit
    origins = origins_of("cascade", 160)
    assert counts(opened) == {o.value: origins.count(o) for o in Origin}
    assert sum(counts(opened).values()) == len(spans(opened))


def test_figures_seed_and_baseline_are_shown(finished: FinishedRun) -> None:
    opened = finished.visit
    assert text_of(opened, "[data-text=ttft]") == "20.0 ms"
    assert text_of(opened, "[data-text=speed]").endswith(" tok/s")
    assert text_of(opened, "[data-text='accepted.intermediate']") == "75 %"
    assert f"seed {FAKE_SEED} " in text_of(opened, "[data-text=run]")
    note = text_of(opened, "[data-text=baseline]")
    assert "autoregressive, same prompt, 101 tokens, measured just before" in note


def test_text_is_shown_literally_and_never_run(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    opened.page.fill("#prompt textarea", NASTY)
    run(opened)
    assert text_of(opened, ".fi-prompt") == NASTY
    assert text_of(opened, ".fi-output") == "".join(islice(cycle(TRAPS), 160))
    assert opened.page.query_selector_all(".fi-tokens img, .fi-tokens script") == []
    assert opened.page.evaluate("window.pwned") is None


def test_charts_get_every_point_and_share_their_axis(finished: FinishedRun) -> None:
    opened = finished.visit
    rounds = len(finished.steps) - 1  # of the run itself: the prefill has no gamma and no TPOT
    (gamma,) = chart(opened, "gamma")
    assert gamma["y"][:-1] == [step.gamma for step in finished.steps[1:]]
    assert gamma["x"][0] == 1 and gamma["x"][-1] == 160
    target, intermediate, draft, *_ = chart(opened, "cache")
    assert len(target["x"]) == len(draft["x"]) == len(intermediate["x"]) == rounds + 1
    assert target["text"][-1].endswith(" MB")
    _, median, baseline = chart(opened, "tpot")
    assert len(median["x"]) == rounds
    assert baseline["x"] == [*range(2, 102), 160]  # as it was measured, then to the end
    assert set(baseline["y"]) == {10}
    for name in ("gamma", "cache", "tpot"):
        axis = opened.page.eval_on_selector(f"[data-chart={name}]", "n => n.layout.xaxis.range")
        assert axis == [0, 160]


def test_the_baselines_text_shows_while_it_is_measured_and_then_goes(
    site: Site, visit: Open
) -> None:
    site.engine.pace_s = 0.02
    opened = visit(site.url)
    opened.page.click("#generate")
    opened.page.wait_for_function("document.querySelector('.fi-preview').textContent.length > 40")
    shown = text_of(opened, ".fi-preview")
    assert "".join(islice(cycle(TRAPS), 160)).startswith(shown)
    assert spans(opened) == [] and sum(counts(opened).values()) == 0
    wait_for_tokens(opened, 1)
    assert text_of(opened, ".fi-preview") == ""


def test_stop_takes_the_baselines_text_away(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.02
    opened = visit(site.url)
    opened.page.click("#generate")
    opened.page.wait_for_function("document.querySelector('.fi-preview').textContent.length > 40")
    opened.page.click("#stop")
    wait_for_state(opened, "stopped")
    assert text_of(opened, ".fi-preview") == ""


def test_the_method_autoregressive_has_no_baseline_of_its_own(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    opened.page.check("#method input[value=autoregressive]")
    run(opened)
    assert text_of(opened, "[data-text=baseline]") == "This run is the baseline itself."
    assert chart(opened, "tpot")[2]["x"] == []


def test_a_second_visitor_waits_and_is_served(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.03
    first, second = visit(site.url), visit(site.url)
    set_number(first, "max_new_tokens", "20000")
    first.page.click("#generate")
    wait_for_tokens(first, 5)
    second.page.click("#generate")
    second.page.wait_for_function(
        "document.querySelector('#status').closest('.block, .column').innerText.includes('queue')"
    )
    assert site.engine.most_streams == 1
    # A page behind another draws no frames, and Playwright's own click waits for some.
    first.page.evaluate("document.querySelector('#stop').click()")
    site.engine.pace_s = 0.0
    wait_for_state(second, "done")
    assert len(spans(second)) == 160 and site.engine.most_streams == 1


def test_a_bad_value_is_a_toast_that_names_it_and_keeps_the_form(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    run(opened)
    opened.page.fill("#prompt textarea", NASTY)
    for name, value in (("temperature", "-1"), ("max_new_tokens", "0"), ("seed", "<b>7</b>")):
        field = f"#{name} input, #{name} textarea"
        good = opened.page.input_value(field)
        opened.page.fill(field, value)
        opened.page.click("#generate")
        toast = opened.page.wait_for_selector(f".toast-body:has-text('{field_name(name)}')")
        words = toast.inner_text()
        assert f"{field_name(name)}: must be" in words and value in words
        assert "Traceback" not in words
        opened.page.wait_for_selector("#generate:not([disabled])")
        assert opened.page.input_value(field) == value
        assert opened.page.input_value("#prompt textarea") == NASTY
        assert len(spans(opened)) == 160  # the last run is still there
        opened.page.fill(field, good)


def test_an_empty_prompt_is_a_toast(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    opened.page.fill("#prompt textarea", "")
    opened.page.click("#generate")
    toast = opened.page.wait_for_selector(".toast-body")
    assert "Prompt: is empty" in toast.inner_text()
    assert site.engine.requests == []


def test_an_engine_that_breaks_says_so_and_the_page_goes_on(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    run(opened)
    site.engine.fail_at = 8
    opened.page.check("#method input[value=autoregressive]")
    opened.page.click("#generate")
    toast = opened.page.wait_for_selector(".toast-body")
    assert "logits of the target are not finite" in toast.inner_text()
    wait_for_state(opened, "failed")
    site.engine.fail_at = None
    opened.page.wait_for_selector("#generate:not([disabled])")
    run(opened)


def test_every_origin_can_be_read(finished: FinishedRun) -> None:
    opened = finished.visit
    for theme in ("dark", "light"):
        in_theme(opened, theme)
        for origin in Origin:
            assert contrast(opened, f".fi-swatch.fi-{origin}", None) >= 4.5
            assert contrast(opened, f".fi-token.fi-{origin}", None) >= 4.5
        for selector in (".fi-prompt", ".fi-figures dt", ".fi-figures dd", ".fi-chart-keys"):
            assert contrast(opened, selector, ".fi-tokens") >= 4.5


def test_charts_follow_the_theme(finished: FinishedRun) -> None:
    opened = finished.visit
    before = chart(opened, "cache")
    color = "document.querySelector('[data-chart=cache]').data[1].line.color"
    light = opened.page.evaluate(color)
    in_theme(opened, "dark")
    opened.page.wait_for_function(f"{color} !== '{light}'")
    assert chart(opened, "cache") == before
    in_theme(opened, "light")
    opened.page.wait_for_function(f"{color} === '{light}'")


def test_nothing_moves_while_text_streams(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.02
    opened = visit(site.url)
    set_number(opened, "max_new_tokens", "400")
    opened.page.click("#generate")
    wait_for_tokens(opened, 5)
    tops = (
        "[...document.querySelectorAll('.fi-tokens, .fi-charts, .fi-note')].map(n => n.offsetTop)"
    )
    first = opened.page.evaluate(tops)
    wait_for_tokens(opened, 250)
    assert opened.page.evaluate(tops) == first
    box = opened.page.evaluate(
        "(() => { const b = document.querySelector('.fi-tokens');"
        " return b.scrollHeight - b.scrollTop - b.clientHeight })()"
    )
    assert box < 40  # the end of the text stays in sight


def test_a_zoom_lasts_while_points_arrive(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.02
    opened = visit(site.url)
    set_number(opened, "max_new_tokens", "400")
    opened.page.click("#generate")
    wait_for_tokens(opened, 20)
    node = "document.querySelector('[data-chart=gamma]')"
    opened.page.evaluate(f"Plotly.relayout({node}, {{'xaxis.range': [2, 9]}})")
    wait_for_tokens(opened, 120)
    assert opened.page.evaluate(f"{node}.layout.xaxis.range") == [2, 9]


def test_a_legend_entry_singles_out_its_origin(finished: FinishedRun) -> None:
    opened = finished.visit
    opened.page.click(".fi-key[data-origin=bonus]")
    faded = "getComputedStyle(document.querySelector('.fi-token.fi-{}')).backgroundColor"
    assert opened.page.evaluate(faded.format("draft")) == "rgba(0, 0, 0, 0)"
    assert opened.page.evaluate(faded.format("bonus")) != "rgba(0, 0, 0, 0)"
    opened.page.click(".fi-key[data-origin=bonus]")
    assert opened.page.evaluate(faded.format("draft")) != "rgba(0, 0, 0, 0)"


def test_screen_readers_hear_the_end_only(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    assert opened.page.get_attribute(".fi-tokens", "aria-live") == "off"
    assert text_of(opened, ".fi-summary[aria-live=polite]") == ""
    run(opened)
    assert text_of(opened, ".fi-summary").startswith("Done: 160 tokens")


def test_a_phone_shows_everything_without_scrolling_sideways(site: Site, visit: Open) -> None:
    opened = visit(site.url, width=390)
    run(opened)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.page.evaluate("document.querySelector('.fi-tokens').clientWidth") > 340
    top = opened.page.evaluate("document.querySelector('.fi-view').getBoundingClientRect().top")
    assert top < 450  # the run came into view by itself


def test_updates_are_few(site: Site, visit: Open) -> None:
    site.engine.pace_s = 0.01
    opened = visit(site.url)
    set_number(opened, "max_new_tokens", "600")
    opened.page.evaluate(
        """() => {
          const output = document.querySelector('.fi-output');
          window.updates = [];
          const note = () => window.updates.push(performance.now());
          new MutationObserver(note).observe(output, {childList: true});
        }"""
    )
    run(opened)
    times = opened.page.evaluate("window.updates")
    assert len(times) / ((times[-1] - times[0]) / 1000) < 12


@pytest.mark.integration
def test_the_real_engine_on_the_page(visit: Open) -> None:
    if not (NANO / "target" / "config.json").is_file():
        pytest.skip("the nano weights are not in assets/models/nano")
    engine_module = pytest.importorskip("fastinfer.engine")
    config_module = pytest.importorskip("fastinfer.config")
    engine = engine_module.load("nano", dtype="float32")
    wanted = engine.generate(
        "The old man looked at the sea and",
        config_module.DecodeConfig.from_mapping(
            {
                "method": "cascade", "gamma_policy": "additive", "gamma": 4, "gamma_max": 16,
                "temperature": 0.8, "max_new_tokens": 24, "seed": 5, "rounds": 2,
            }
        ),
    )  # fmt: skip
    with serving(engine) as url:
        opened = visit(url)
        opened.page.fill("#prompt textarea", "The old man looked at the sea and")
        set_number(opened, "max_new_tokens", "24")
        opened.page.fill("#seed input, #seed textarea", "5")
        # A policy without a clock: the same seed then gives the same blocks.
        opened.page.click("#drafting > button")
        opened.page.click("#gamma_policy input")
        opened.page.get_by_role("option", name="additive").click()
        run(opened)
        assert text_of(opened, ".fi-output") == wanted.text
        origins = [t.origin for e in wanted.events for t in getattr(e, "tokens", ())]
        seen = spans(opened)
        assert [s["classes"].split()[1] for s in seen] == [f"fi-{o}" for o in origins]
