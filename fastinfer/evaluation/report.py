"""A benchmark's document as one web page that needs no network, and as a picture.

Plotly is known to this file and to `pareto.py` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fastinfer.evaluation.names import PEERS
from fastinfer.evaluation.page import page, write_picture
from fastinfer.evaluation.table import drafting, remarks, rows, setting

Result = Mapping[str, Any]

OURS = "#0072B2"
THEIRS = "#7F7F7F"
PREDICTED = "#E69F00"


def figure(document: Result) -> go.Figure:
    """Four charts: TPOT, TTFT, acceptance by position, predicted and achieved speed-up.

    Bars of peers are grey; lines are quartiles.
    """
    chart = make_subplots(
        rows=2, cols=2, vertical_spacing=0.24, horizontal_spacing=0.1,
        subplot_titles=(
            "TPOT, ms per token (lower is better)", "TTFT, ms (lower is better)",
            "Acceptance by position in the block", "Speed-up over plain decoding",
        ),
    )  # fmt: skip
    results: Mapping[str, Result] = document["results"]
    for column, key in enumerate(("tpot_ms", "ttft_ms"), start=1):
        chart.add_trace(_bars(results, key), row=1, col=column)
    for trace in _acceptance(results):
        chart.add_trace(trace, row=2, col=1)
    for trace in _speedups(results):
        chart.add_trace(trace, row=2, col=2)
    chart.add_hline(y=1, line_width=1, row=2, col=2)
    chart.update_yaxes(rangemode="tozero")
    chart.update_yaxes(range=[0, 1.05], row=2, col=1)
    chart.update_xaxes(title_text="position", dtick=1, row=2, col=1)
    chart.update_layout(template="plotly_white", height=820, width=1150, margin={"t": 60})
    return chart


def write_html(document: Result, text: str, path: Path) -> None:
    """The page. `text` is the document as JSON."""
    heads, cells = rows(document)
    content = page(
        title="fastinfer benchmark",
        setting=setting(document),
        heads=heads,
        cells=cells,
        remarks=[*drafting(document), *remarks(document)],
        charts=figure(document),
        document=text,
    )
    path.write_text(content, encoding="utf-8")


def write_png(document: Result, path: Path) -> str | None:
    """The charts as a picture, or why there is none."""
    return write_picture(figure(document), path)


def _bars(results: Mapping[str, Result], key: str) -> go.Bar:
    spreads = [result[key] for result in results.values()]
    medians = [spread["median"] for spread in spreads]
    return go.Bar(
        x=list(results),
        y=medians,
        marker_color=[THEIRS if name in PEERS else OURS for name in results],
        showlegend=False,
        error_y={
            "array": [spread["q3"] - spread["median"] for spread in spreads],
            "arrayminus": [spread["median"] - spread["q1"] for spread in spreads],
        },
    )


def _acceptance(results: Mapping[str, Result]) -> list[go.Scatter]:
    lines = []
    for name, result in results.items():
        for role, stage in result.get("stages", {}).items():
            shares = stage["acceptance_by_position"]
            if shares:
                positions = list(range(1, len(shares) + 1))
                label = f"{name}, by the {role}"
                lines.append(go.Scatter(x=positions, y=shares, name=label, mode="lines+markers"))
    return lines


def _speedups(results: Mapping[str, Result]) -> list[go.Bar]:
    measured = {name: r for name, r in results.items() if "achieved_speedup" in r}
    bars = []
    for key, colour in (("predicted_speedup", PREDICTED), ("achieved_speedup", OURS)):
        values = [result.get(key) for result in measured.values()]
        label = key.removesuffix("_speedup")
        bars.append(go.Bar(x=list(measured), y=values, name=label, marker_color=colour))
    return bars
