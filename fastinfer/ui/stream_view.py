"""The stream view: coloured tokens, figures and live charts in one gr.HTML with a growing value.

The skeleton is built once from our own words. Text of models and people never goes through a
template, which gr.HTML would evaluate: it travels in `value` and the script sets it by textContent.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

import gradio as gr

from fastinfer.ui.charts import Chart
from fastinfer.ui.skeleton import skeleton
from fastinfer.ui.words import view_words

ASSETS = Path(__file__).resolve().parents[2] / "assets"
STYLES = (ASSETS / "origins.css", ASSETS / "style.css")
# One script in parts, in the order in which they build on each other.
SCRIPTS = (
    "words.js", "plots.js", "live_charts.js", "token_tips.js", "run_files.js", "stream_view.js",
)  # fmt: skip


def plotly_js() -> Path:
    """plotly.js as the installed plotly wheel carries it, so that no page asks a CDN."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise RuntimeError("plotly is not installed: pip install -r requirements.txt")
    return Path(spec.origin).parent / "package_data" / "plotly.min.js"


def plotly_url() -> str:
    """Where the page's server has it."""
    return f"/gradio_api/file={plotly_js()}"


def stream_view(charts: Iterable[Chart], elem_id: str) -> gr.HTML:
    """A live view of one run. Its value is the JSONL text that `records.Recorder` writes.

    A function and not a subclass: of every subclass gradio writes a .pyi file into the sources.
    """
    charts = tuple(charts)
    return gr.HTML(
        value="",
        elem_id=elem_id,
        html_template=skeleton(charts),
        js_on_load="\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS),
        apply_default_css=False,
        head=f'<script src="{plotly_url()}"></script>',
        charts=[chart.to_mapping() for chart in charts],
        words=view_words(),
        replay=replay_template(),
    )


def replay_template() -> str:
    """The page that a saved replay is, with `__RUN__` where the view's script puts the run."""
    page = (ASSETS / "replay.html").read_text(encoding="utf-8")
    return page.replace("/* origins.css */", STYLES[0].read_text(encoding="utf-8"))


def over_js(elem_id: str) -> str:
    """Script for an event's `js=`: tells that view that its run is over, however it ended."""
    return (
        f"() => {{ document.querySelector('#{elem_id} .fi-view')"
        "?.dispatchEvent(new Event('fi-over')); }"
    )
