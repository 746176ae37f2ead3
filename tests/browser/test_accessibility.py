"""axe-core finds nothing serious on any tab, and the keyboard reaches every control."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.acts import SLOW_MS, Open, in_theme, press, show_tab, wait_for, wait_for_still
from tests.browser.harness import Site, Visit

pytestmark = pytest.mark.browser

TABS = {
    "Generate": "generate", "Compare": "compare", "Prove it": "proof", "Quality": "quality",
    "Benchmark": "benchmark", "Models": "models",
}  # fmt: skip
SMALL = {
    "compare": {"compare-tokens": "12"},
    "proof": {"proof-draws": "500"},
    "quality": {"quality-windows": "1", "quality-context": "32"},
    "benchmark": {"benchmark-repeats": "1"},
    "generate": {"max_new_tokens": "24"},
}
GRAVE = {"serious", "critical"}
# What Tab stops at. Of a radio group it is one button; the arrow keys go to the others.
FOCUSABLE = (
    "a[href], button, input, select, textarea, summary, [tabindex='0'], [contenteditable=true]"
)


def grave_findings(visit: Visit) -> list[str]:
    """What axe-core calls serious or critical, as "rule: element"."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(visit.page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in GRAVE
        for node in each["nodes"]
    ]


def run_small(visit: Visit, tab: str) -> None:
    for field, value in SMALL[tab].items():
        visit.page.fill(f"#{field} input", value)
    start = "generate" if tab == "generate" else f"{tab}-start"
    press(visit, start)
    wait_for(visit, f"{tab}-view", "done", SLOW_MS)
    settle(visit, start)


def settle(visit: Visit, start: str) -> None:
    """Wait for the start button to be back: for a moment it is faint."""
    visit.page.wait_for_selector(f"#{start}:not([disabled])")
    wait_for_still(visit)


def grave_in_both_themes(visit: Visit) -> list[str]:
    """The same page in the light theme, then in the dark one."""
    light = grave_findings(visit)
    in_theme(visit, "dark")
    dark = grave_findings(visit)
    in_theme(visit, "light")
    return [*light, *(f"dark: {each}" for each in dark)]


@pytest.mark.timeout(400)
def test_axe_finds_nothing_serious(nano: str, visit: Open) -> None:
    opened = visit(nano)
    for name, tab in TABS.items():
        show_tab(opened, name, f"{tab}-view")
        assert grave_in_both_themes(opened) == [], f"{name} before a run"
        if tab == "models":  # shows the catalogue at once
            continue
        run_small(opened, tab)
        assert grave_in_both_themes(opened) == [], f"{name} after a run"


def test_axe_finds_nothing_serious_in_open_groups_and_on_a_phone(site: Site, visit: Open) -> None:
    opened = visit(site.url, width=390)
    for group in ("drafting", "cache", "sampling"):
        opened.page.click(f"#{group} > button")
    press(opened, "generate")
    wait_for(opened, "generate-view", "done")
    settle(opened, "generate")
    opened.page.evaluate("[...document.querySelectorAll('.fi-token')].pop().click()")
    opened.page.wait_for_selector(".fi-tip:not([hidden])")
    assert grave_findings(opened) == []
    # The check has teeth: a button without a name is found.
    opened.page.evaluate("document.querySelector('.fi-tool').replaceChildren()")
    opened.page.evaluate("document.querySelector('.fi-tool').removeAttribute('title')")
    assert [words.split(":")[0] for words in grave_findings(opened)] == ["button-name"]
    # And words in the wrong colour for one theme.
    opened.page.evaluate("document.querySelector('.fi-view').style.color = '#444'")
    found = [words for words in grave_in_both_themes(opened) if "color-contrast" in words]
    assert found and all(words.startswith("dark: ") for words in found)


@pytest.mark.timeout(400)
def test_tab_reaches_every_control_on_every_tab(nano: str, visit: Open) -> None:
    opened = visit(nano)
    for name, tab in TABS.items():
        show_tab(opened, name, f"{tab}-view")
        if tab in ("generate", "compare"):
            run_small(opened, tab)
        missed = unreached(opened)
        assert missed == [], f"{name}: {missed}"


def unreached(visit: Visit) -> list[str]:
    """Controls in sight that Tab, pressed from the top until it comes round, never stops at."""
    count: int = visit.page.evaluate(
        """(selector) => {
          document.activeElement.blur();
          const seen = [...document.querySelectorAll(selector)].filter((node) =>
            node.checkVisibility({visibilityProperty: true}) && !node.disabled
            && node.tabIndex >= 0 && !node.closest('[hidden], .hidden')
            && (getComputedStyle(node).opacity !== '0' || node.type === 'radio'));
          window.controls = new Set(seen);
          window.reached = new Set();
          document.addEventListener('focusin', (event) => window.reached.add(event.target));
          return seen.length;
        }""",
        FOCUSABLE,
    )
    assert count >= 8  # the tabs alone are six
    for _ in range(count + 12):
        visit.page.keyboard.press("Tab")
    missed: list[str] = visit.page.evaluate(
        """() => [...window.controls].filter((node) => !window.reached.has(node)
          && !(node.type === 'radio' && [...window.reached].some((other) =>
            other.type === 'radio' && other.closest('fieldset') === node.closest('fieldset'))))
          .map((node) => node.outerHTML.slice(0, 160))"""
    )
    return missed
