"""The stream view: coloured tokens, figures and live charts in one gr.HTML with a growing value.

The skeleton is built once from our own words. Text of models and people never goes through a
template, which gr.HTML would evaluate: it travels in `value` and the script sets it by textContent.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from html import escape
from pathlib import Path

import gradio as gr

from fastinfer.events import Origin
from fastinfer.ui.charts import Chart, Key
from fastinfer.ui.labels import FIGURE_LABELS, NOTHING, ORIGIN_LABELS, Label

ASSETS = Path(__file__).resolve().parents[2] / "assets"
PLACEHOLDER = "The text appears here, each token in the colour of its origin."


def plotly_js() -> Path:
    """plotly.js as the installed plotly wheel carries it, so that no page asks a CDN."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise RuntimeError("plotly is not installed: pip install -r requirements.txt")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


def stream_view(charts: Iterable[Chart], elem_id: str) -> gr.HTML:
    """A live view of one run. Its value is the JSONL text that `records.Recorder` writes.

    A function and not a subclass: of every subclass gradio writes a .pyi file into the sources.
    """
    charts = tuple(charts)
    return gr.HTML(
        value="",
        elem_id=elem_id,
        html_template=skeleton(charts),
        js_on_load=(ASSETS / "stream_view.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        head=f'<script src="/gradio_api/file={plotly_js()}"></script>',
        charts=[chart.to_mapping() for chart in charts],
    )


def over_js(elem_id: str) -> str:
    """Script for an event's `js=`: tells that view that its run is over, however it ended."""
    return (
        f"() => {{ document.querySelector('#{elem_id} .fi-view')"
        "?.dispatchEvent(new Event('fi-over')); }"
    )


def skeleton(charts: Iterable[Chart]) -> str:
    """The constant markup. Elements with `data-text` are filled by records of that name."""
    figures = "".join(_figure(name, label) for name, label in FIGURE_LABELS.items())
    keys = "".join(_legend_key(origin) for origin in Origin)
    plots = "".join(_chart(chart) for chart in charts)
    return (
        '<section class="fi-view" data-state="idle" data-only="">'
        '<header class="fi-state"><span class="fi-dot"></span>'
        '<strong data-text="phase">Ready</strong>'
        '<span class="fi-run" data-text="run"></span></header>'
        f'<dl class="fi-figures">{figures}</dl>'
        '<div class="fi-legend" role="group" aria-label="Origins; press one to single it out">'
        f"{keys}</div>"
        '<div class="fi-tokens" tabindex="0" role="region" aria-label="Text" aria-live="off">'
        f'<span class="fi-prompt">{PLACEHOLDER}</span>'
        '<span class="fi-output"></span></div>'
        f'<div class="fi-charts">{plots}</div>'
        '<p class="fi-note" data-text="baseline"></p>'
        '<p class="fi-summary" role="status" aria-live="polite"></p>'
        '<div class="fi-tip" role="tooltip" hidden></div>'
        "</section>"
    )


def _figure(name: str, label: Label) -> str:
    return (
        f'<div title="{escape(label.help)}"><dt>{escape(label.name)}</dt>'
        f'<dd data-text="{name}">{NOTHING}</dd></div>'
    )


def _legend_key(origin: Origin) -> str:
    label = ORIGIN_LABELS[origin]
    return (
        f'<button type="button" class="fi-key" data-origin="{origin}" aria-pressed="false" '
        f'title="{escape(label.help)}">'
        f'<span class="fi-swatch fi-{origin}">{escape(label.name)}</span>'
        f'<b data-text="count.{origin}">0</b></button>'
    )


def _chart(chart: Chart) -> str:
    keys = "".join(_chart_key(key) for key in chart.keys)
    return (
        f'<figure class="fi-chart"><figcaption><strong>{escape(chart.title)}</strong>'
        f'<span class="fi-chart-keys">{keys}</span></figcaption>'
        f'<div data-chart="{chart.name}"></div></figure>'
    )


def _chart_key(key: Key) -> str:
    value = f' <b data-text="{key.place}">{NOTHING}</b>' if key.place else ""
    return (
        f'<span><i style="border-top-color: {key.color}; border-top-style: {key.style}"></i>'
        f"{escape(key.name)}{value}</span>"
    )
