"""What the page says of single tokens: tooltips, what was refused, white space, presses, bars."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from fastinfer.events import Origin
from tests.browser.acts import (
    Open,
    chart,
    contrast,
    faint_words,
    in_theme,
    press_fields,
    run,
    spans,
    text_of,
)
from tests.browser.fake_engine import TRAPS, origins_of
from tests.browser.harness import FinishedRun, Site, Visit

pytestmark = pytest.mark.browser

START = 37  # words of the prompt as the page opens, which are the fake engine's tokens


def tip_of(opened: Visit) -> list[str]:
    """The tooltip's lines and cells."""
    tip = opened.page.wait_for_selector(".fi-tip:not([hidden])")
    cells: list[str] = tip.eval_on_selector_all("span", "all => all.map(s => s.textContent)")
    return cells


def test_a_tooltip_tells_a_tokens_own_figures(finished: FinishedRun) -> None:
    opened = finished.visit
    opened.page.evaluate("document.querySelector('.fi-tokens').scrollTop = 0")
    opened.page.hover(".fi-token.fi-resampled >> nth=0")
    words = tip_of(opened)
    assert words[0] == '·<img·src=x·onerror="window.pwned=1">'
    assert words[words.index("position") + 1] == f"{START + 4} · round 1"
    assert words[words.index("target") + 1] == "50.00 %"
    refused = "·wrong (target 50.00 %, draft 62.50 %, accepted with 80.00 %)"
    assert words[words.index("refused here") + 1] == refused
    assert "draft" not in words  # a token of the target's own has no draft probability
    opened.page.hover(".fi-token.fi-draft >> nth=0")
    opened.page.wait_for_function(
        "document.querySelector('.fi-tip').textContent.includes('80.00 %')"
    )
    words = tip_of(opened)
    assert words[words.index("origin") + 1] == "draft"
    assert words[words.index("accepted with") - 1] == "62.50 %"
    assert words[words.index("position") + 1] == f"{START + 1} · round 1"
    opened.page.mouse.move(0, 0)
    opened.page.evaluate("document.querySelector('.fi-tokens').scrollTop = 1e6")


def test_the_arrow_keys_go_from_token_to_token(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    run(opened)
    opened.page.focus(".fi-tokens")
    for key, first in (("ArrowRight", "·The"), ("ArrowRight", "·sea"), ("ArrowLeft", "·The")):
        opened.page.keyboard.press(key)
        assert tip_of(opened)[0] == first
    at = opened.page.get_attribute(".fi-tokens", "aria-activedescendant")
    assert text_of(opened, f"#{at}") == " The"
    tip = opened.page.get_attribute(".fi-tip", "id")
    assert opened.page.get_attribute(f"#{at}", "aria-describedby") == tip
    opened.page.keyboard.press("Escape")
    assert opened.page.query_selector(".fi-tip:not([hidden])") is None


def test_a_tap_shows_the_tooltip_and_a_tap_elsewhere_hides_it(finished: FinishedRun) -> None:
    opened = finished.visit
    opened.page.evaluate("[...document.querySelectorAll('.fi-token')].pop().click()")
    assert "origin" in tip_of(opened)
    opened.page.evaluate(
        "document.querySelector('.fi-legend').dispatchEvent("
        "new PointerEvent('pointerdown', {bubbles: true, pointerType: 'touch'}))"
    )
    assert opened.page.query_selector(".fi-tip:not([hidden])") is None


def test_what_was_refused_is_struck_through_on_request_and_is_no_text(
    finished: FinishedRun,
) -> None:
    opened = finished.visit
    marks = opened.page.query_selector_all(".fi-output del")
    assert len(marks) == origins_of("cascade", 160).count(Origin.RESAMPLED)
    assert not marks[0].is_visible()
    opened.page.click("[data-toggle=refused]")
    drawn = opened.page.evaluate(
        "(() => { const mark = document.querySelector('.fi-output del');"
        " const style = getComputedStyle(mark, '::before');"
        " return [style.content, style.textDecorationLine, mark.nextSibling.dataset.origin] })()"
    )
    assert drawn == ['"·wrong"', "line-through", "resampled"]
    assert text_of(opened, ".fi-output") == "".join(islice(cycle(TRAPS), 160))
    opened.page.click("[data-toggle=refused]")
    assert not marks[0].is_visible()


def test_whitespace_shows_as_signs_and_goes_back(finished: FinishedRun) -> None:
    opened = finished.visit
    opened.page.click("[data-toggle=spaces]")
    shown = [s["text"].replace("\u200b", "") for s in spans(opened)][: len(TRAPS)]
    signs = str.maketrans({" ": "·", "\t": "→\t", "\n": "↵\n"})
    assert shown == [trap.translate(signs) for trap in TRAPS]
    opened.page.click("[data-toggle=spaces]")
    assert text_of(opened, ".fi-output") == "".join(islice(cycle(TRAPS), 160))


def test_a_press_is_asked_for_drawn_and_called_lossy(site: Site, visit: Open) -> None:
    opened = visit(site.url)
    press_fields(opened, press_interval="24", compression_ratio="0.25", shadow_every="2")
    run(opened)
    asked = site.engine.requests[-1]
    assert asked.compression is not None and asked.compression.press == "knorm"
    assert (asked.compression.interval, asked.compression.compression_ratio) == (24, 0.25)
    assert asked.shadow_every == 2
    assert text_of(opened, "[data-text=law]") == "⚠ Lossy"
    assert text_of(opened, "[data-text='law.reason']") == asked.lossless_reason
    assert contrast(opened, ".fi-law b", ".fi-tokens") >= 4.5
    assert text_of(opened, "[data-text='shadow.top1']") == "75 %"
    opened.page.wait_for_function(
        "document.querySelector('[data-chart=cache]').data[4].x.length >= 4"
    )
    whole, marks = chart(opened, "cache")[3:]
    assert whole["y"][-1] == START + 160
    assert all(" → " in words for words in marks["text"])


def test_bars_say_their_shares_in_words_too(finished: FinishedRun) -> None:
    opened = finished.visit
    label = opened.page.get_attribute("[data-bars=target]", "aria-label") or ""
    shares = opened.page.eval_on_selector_all(
        "[data-bars=target] > i", "all => all.map(bar => bar.dataset.share)"
    )
    assert len(shares) >= 3
    for position, share in enumerate(shares, start=1):
        assert f"{position}: {share} % of " in label


def test_every_word_on_the_page_has_contrast(site: Site, visit: Open) -> None:
    opened = visit(site.url, theme="dark")
    press_fields(opened)
    opened.page.click("#drafting > button")
    run(opened)
    for theme, faint in (("dark", "#444"), ("light", "#999")):
        in_theme(opened, theme)
        assert faint_words(opened) == []
        opened.page.evaluate(f"document.querySelector('.fi-run').style.color = '{faint}'")
        assert len(faint_words(opened)) == 1  # it would have been seen
        opened.page.evaluate("document.querySelector('.fi-run').style.color = ''")


def test_everything_can_be_reached_by_keyboard(finished: FinishedRun) -> None:
    opened = finished.visit
    opened.page.focus("#generate")
    reached: set[str] = set()
    for _ in range(60):
        opened.page.keyboard.press("Tab")
        name, ring = opened.page.evaluate(
            "(() => { const n = document.activeElement, s = getComputedStyle(n), d = n.dataset;"
            " return [d.origin || d.toggle || d.save || n.className || n.id,"
            " s.outlineStyle !== 'none' || s.boxShadow !== 'none'] })()"
        )
        reached.add(str(name))
        if name in ("fi-tokens", "json", "spaces", "bonus"):
            assert ring, f"{name} shows no focus"
    tools = {"refused", "spaces", "fi-tokens", "link", "json", "csv", "html"}
    assert {*map(str, Origin)} | tools <= reached
