"""What tests do on the page, and what they read off it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastinfer.events import Origin
from tests.browser.harness import Visit

Open = Callable[..., Visit]
SLOW_MS = 150_000  # a real engine on a busy machine
NASTY = '${x} {{x}} <img src=x onerror="window.pwned=1"> `${console.error(1)}` 🌊 海は שלום\n\ttab'


def show_tab(visit: Visit, name: str, view: str) -> None:
    visit.page.get_by_role("tab", name=name, exact=True).click()
    visit.page.wait_for_selector(f"#{view} .fi-view")


def press(visit: Visit, button: str) -> None:
    # A page behind another draws no frames, and Playwright's own click waits for some.
    visit.page.wait_for_selector(f"#{button}:not([disabled])", state="attached")
    visit.page.evaluate(f"document.querySelector('#{button}').click()")


def wait_for(visit: Visit, view: str, state: str, timeout: float | None = None) -> None:
    selector = f"#{view} .fi-view[data-state={state}]"
    visit.page.wait_for_selector(selector, state="attached", timeout=timeout)


def run(visit: Visit) -> None:
    """Press Generate and wait for the end."""
    visit.page.click("#generate")
    wait_for_state(visit, "done")


def run_again(visit: Visit) -> None:
    """The same where a run may be on the page already."""
    visit.page.evaluate("document.querySelector('.fi-view').dataset.state = 'idle'")
    run(visit)


def wait_for_state(visit: Visit, state: str) -> None:
    visit.page.wait_for_selector(f".fi-view[data-state={state}]")


def wait_for_tokens(visit: Visit, count: int) -> None:
    visit.page.wait_for_function(f"document.querySelectorAll('.fi-token').length >= {count}")


def spans(visit: Visit) -> list[dict[str, str]]:
    found: list[dict[str, str]] = visit.page.eval_on_selector_all(
        ".fi-output > :not(del)",
        "all => all.map(s => ({tag: s.tagName, text: s.textContent, classes: s.className,"
        " children: s.childElementCount}))",
    )
    return found


def text_of(visit: Visit, selector: str) -> str:
    return str(visit.page.eval_on_selector(selector, "node => node.textContent"))


def counts(visit: Visit) -> dict[str, int]:
    return {o.value: int(text_of(visit, f"[data-text='count.{o}']")) for o in Origin}


def enabled(visit: Visit, name: str) -> bool:
    return bool(visit.page.is_enabled(f"#{name}"))


def set_number(visit: Visit, name: str, value: str) -> None:
    visit.page.fill(f"#{name} input", value)


def chart(visit: Visit, name: str) -> list[dict[str, Any]]:
    """The traces of a chart, once all points that came are drawn."""
    visit.page.wait_for_function("!document.querySelector('.fi-view[data-drawing=on]')")
    traces: list[dict[str, Any]] = visit.page.eval_on_selector(
        f"[data-chart={name}]",
        "node => node.data.map(t =>"
        " ({x: [...t.x], y: [...t.y], text: t.text ? [...t.text] : null}))",
    )
    return traces


def contrast(visit: Visit, selector: str, ground: str | None) -> float:
    """WCAG contrast of an element's text with its own background, or with that of `ground`."""
    ratio: float = visit.page.evaluate(
        """([selector, ground]) => {
          const lum = (css) => { const [r, g, b] = css.match(/[\\d.]+/g).map(Number).map((v) => {
            v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const node = document.querySelector(selector);
          const under = ground ? document.querySelector(ground) : node;
          const back = getComputedStyle(under).backgroundColor;
          const pair = [lum(getComputedStyle(node).color), lum(back)].sort((a, b) => b - a);
          return (pair[0] + 0.05) / (pair[1] + 0.05);
        }""",
        [selector, ground],
    )
    return ratio


def press_fields(visit: Visit, **typed: str) -> None:
    """Choose knorm, and fill fields of its group."""
    visit.page.click("#cache > button")
    visit.page.click("#press input")
    visit.page.get_by_role("option", name="knorm").click()
    for name, value in typed.items():
        visit.page.fill(f"#{name} input, #{name} textarea", value)


def in_theme(visit: Visit, theme: str) -> None:
    """Change the theme of an open page, and wait until its colours have."""
    visit.page.evaluate(f"document.body.classList.toggle('dark', {str(theme == 'dark').lower()})")
    wait_for_still(visit)


def wait_for_still(visit: Visit) -> None:
    visit.page.wait_for_function("document.getAnimations().every((a) => a.playState !== 'running')")


def faint_words(visit: Visit) -> list[str]:
    """Words in sight whose WCAG contrast with the ground under them is below 4.5.

    Disabled controls are exempt, as in WCAG 1.4.3.
    """
    found: list[str] = visit.page.evaluate(
        """() => {
          const numbers = (css) => css.match(/[\\d.]+/g).map(Number);
          const lum = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((v) => {
            v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * x + 0.7152 * y + 0.0722 * z; };
          const ground = (node) => {
            for (; node; node = node.parentElement) {
              const color = numbers(getComputedStyle(node).backgroundColor);
              if (color.length === 3 || color[3] === 1) return color;
            }
            return [255, 255, 255];
          };
          const faint = [];
          for (const node of document.querySelectorAll('body *')) {
            const text = [...node.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data);
            const words = text.join('').trim(), at = node.getBoundingClientRect();
            if (!words || at.width < 2 || at.height < 2 || !node.checkVisibility()) continue;
            if (node.closest('[disabled], script, style, .fi-summary, .fi-tip')) continue;
            const style = getComputedStyle(node);
            const ink = node.ownerSVGElement ? style.fill : style.color;
            const pair = [lum(numbers(ink)), lum(ground(node))].sort((a, b) => b - a);
            const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
            if (ratio < 4.5) faint.push(`${ratio.toFixed(2)}: ${words.slice(0, 40)}`);
          }
          return [...new Set(faint)];
        }"""
    )
    return found
