"""The stream view's constant markup, from our own words alone. Pure.

`data-text` names a place that records fill; what has `data-word` the script may translate, as any
title and label.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from fastinfer.events import Origin
from fastinfer.ui.charts import Chart, Key
from fastinfer.ui.figures import STAGE_ROLES
from fastinfer.ui.labels import (
    COST_LABELS,
    FIGURE_LABELS,
    NOTHING,
    ORIGIN_LABELS,
    ROLE_ORDER,
    Label,
)

PLACEHOLDER = "The text appears here, each token in the colour of its origin."
HOW_TO_READ = "Text; the left and right arrow keys go from token to token"


def skeleton(charts: Iterable[Chart]) -> str:
    """The whole view."""
    figures = "".join(_figure(name, label) for name, label in FIGURE_LABELS.items())
    plots = "".join(_chart(chart) for chart in charts)
    return (
        '<section class="fi-view" data-state="idle" data-only="" data-law="">'
        f'{_header()}<dl class="fi-figures">{figures}</dl>{_legend()}'
        f'<div class="fi-tokens" tabindex="0" role="group" aria-label="{HOW_TO_READ}" '
        'aria-live="off">'
        f'<span class="fi-prompt" data-word>{PLACEHOLDER}</span>'
        '<span class="fi-output"></span><span class="fi-preview"></span></div>'
        f"{_foot()}"
        f'<div class="fi-charts">{plots}</div>'
        f'<div class="fi-charts fi-panels">{_acceptance()}{_costs()}{_models()}</div>'
        '<p class="fi-summary" role="status" aria-live="polite"></p>'
        '<div class="fi-tip" role="tooltip" hidden></div>'
        "</section>"
    )


def _header() -> str:
    return (
        '<header class="fi-state"><span class="fi-dot"></span>'
        '<strong data-text="phase" data-word>Ready</strong>'
        '<span class="fi-run" data-text="run"></span></header>'
        '<p class="fi-law"><b data-text="law"></b><span data-text="law.reason"></span></p>'
    )


def _figure(name: str, label: Label) -> str:
    return (
        f'<div title="{escape(label.help)}"><dt data-word>{escape(label.name)}</dt>'
        f'<dd data-text="{name}">{NOTHING}</dd></div>'
    )


def _legend() -> str:
    keys = "".join(_legend_key(origin) for origin in Origin)
    return (
        '<div class="fi-legend"><div role="group" aria-label="Origins; press one to single it out">'
        f'{keys}</div><div role="group" aria-label="Show">'
        + _toggle("refused", "Rejected drafts", "Show each refused draft token, struck through")
        + _toggle("spaces", "Whitespace", "Show spaces, tabs and line breaks as signs")
        + "</div></div>"
    )


def _legend_key(origin: Origin) -> str:
    label = ORIGIN_LABELS[origin]
    return (
        f'<button type="button" class="fi-key" data-origin="{origin}" aria-pressed="false" '
        f'title="{escape(label.help)}">'
        f'<span class="fi-swatch fi-{origin}" data-word>'
        f'{escape(label.name)}</span><b data-text="count.{origin}">0</b></button>'
    )


def _toggle(name: str, text: str, help: str) -> str:
    return (
        f'<button type="button" class="fi-tool" data-toggle="{name}" aria-pressed="false" '
        f'title="{escape(help)}" data-word>{escape(text)}</button>'
    )


def _foot() -> str:
    """What the baseline was, and what one can take along."""
    formats = {
        "json": ("JSON", "Save the engine's events"),
        "csv": ("CSV", "Save a row per token"),
        "html": ("HTML", "Save a page that replays this run"),
    }
    saves = "".join(
        f'<button type="button" class="fi-tool" data-save="{kind}" disabled '
        f'title="{help}">{name}</button>'
        for kind, (name, help) in formats.items()
    )
    return (
        '<div class="fi-foot"><p class="fi-note" data-text="baseline"></p>'
        '<div role="group" aria-label="Share and save">'
        '<button type="button" class="fi-tool fi-link" data-save="link" disabled '
        'title="A link that fills the form with this prompt, these options and this seed" '
        f"data-word>Copy link</button>{saves}</div></div>"
    )


def _chart(chart: Chart) -> str:
    # Lines with a value of their own stand below the title, what needs none beside it.
    keys = "".join(_chart_key(key) for key in chart.keys if key.place)
    signs = "".join(_chart_key(key) for key in chart.keys if not key.place)
    return (
        '<figure class="fi-chart"><figcaption><div>'
        f"<strong data-word>{escape(chart.title)}</strong>"
        f'<span class="fi-chart-keys">{signs}</span></div>'
        f'<span class="fi-chart-keys">{keys}</span></figcaption>'
        f'<div data-chart="{chart.name}"></div></figure>'
    )


def _chart_key(key: Key) -> str:
    value = f' <b data-text="{key.place}">{NOTHING}</b>' if key.place else ""
    sign = (
        f'<i class="fi-mark" style="color: {key.color}">▼</i>'
        if key.style == "mark"
        else f'<i style="border-top-color: {key.color}; border-top-style: {key.style}"></i>'
    )
    return f"<span>{sign}<span data-word>{escape(key.name)}</span>{value}</span>"


def _panel(title: str, body: str) -> str:
    return f'<section class="fi-chart fi-panel"><h2 data-word>{escape(title)}</h2>{body}</section>'


def _acceptance() -> str:
    """Bars for each verifier; the script fills them and says them in words to a screen reader."""
    rows = "".join(
        f'<div class="fi-bar-row"><span class="fi-bar-name" data-word>{role}</span>'
        f'<div class="fi-bars" data-bars="{role}" role="img" '
        f'aria-label="{role}: nothing tested yet"></div></div>'
        for role in STAGE_ROLES
    )
    return _panel("Acceptance by position, %", rows)


def _costs() -> str:
    rows = "".join(_figure(name, label) for name, label in COST_LABELS.items())
    return _panel("Predicted and achieved", f'<dl class="fi-rows">{rows}</dl>')


def _models() -> str:
    rows = "".join(
        f'<div><dt data-word>{role}</dt><dd><span data-text="model.{role}">{NOTHING}</span>'
        f'<small data-text="decoder.{role}">{NOTHING}</small></dd></div>'
        for role in ROLE_ORDER
    )
    where = (
        f'<div><dt data-word>numbers</dt><dd><span data-text="dtype">{NOTHING}</span>'
        f'<small data-text="device">{NOTHING}</small></dd></div>'
    )
    return _panel("Models", f'<dl class="fi-rows fi-models">{rows}{where}</dl>')
