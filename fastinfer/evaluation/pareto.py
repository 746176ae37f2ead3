"""The document of `ppl` as one web page that needs no network, and as a picture: quality against
memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.page import page, write_picture
from fastinfer.evaluation.palette import line_look
from fastinfer.evaluation.perplexity import TWO_SIDED_95
from fastinfer.evaluation.ppl_table import remarks, rows, setting

Result = Mapping[str, Any]

WHOLE = "#000000"


def figure(document: Result) -> go.Figure:
    """Perplexity against the bytes that the cache held on average, a line for each press.

    Down and to the left is better. Every line begins at the whole cache; the bars are 95% intervals
    of the distance from it, which are much shorter than those of perplexity itself.
    """
    results: Mapping[str, Result] = document["results"]
    whole = [results[UNCOMPRESSED]] if UNCOMPRESSED in results else []
    presses = list(dict.fromkeys(r["press"] for r in results.values() if r["press"]))
    chart = go.Figure()
    for index, press in enumerate(presses):
        points = [*whole, *(r for r in results.values() if r["press"] == press)]
        chart.add_trace(_line(press, points, line_look(index)))
    chart.add_trace(_line(UNCOMPRESSED, whole, {"color": WHOLE}))
    chart.update_xaxes(title_text="live KV cache, MB (mean over the tokens)", rangemode="tozero")
    # A press that breaks the model would push the others together on a linear axis.
    chart.update_yaxes(title_text="perplexity (lower is better)", type="log")
    chart.update_layout(template="plotly_white", height=620, width=1000, margin={"t": 30})
    return chart


def write_html(document: Result, text: str, path: Path) -> None:
    """The page. `text` is the document as JSON."""
    heads, cells = rows(document)
    content = page(
        title="fastinfer perplexity",
        setting=setting(document),
        heads=heads,
        cells=cells,
        remarks=remarks(document),
        charts=figure(document),
        document=text,
    )
    path.write_text(content, encoding="utf-8")


def write_png(document: Result, path: Path) -> str | None:
    """The plot as a picture, or why there is none."""
    return write_picture(figure(document), path)


def _line(name: str, points: list[Result], line: dict[str, str]) -> go.Scatter:
    points = sorted(points, key=lambda point: point["mean_live_bytes"])
    values = [point["perplexity"] for point in points]
    margins = [
        TWO_SIDED_95 * (point.get("over_uncompressed", {}).get("standard_error") or 0.0)
        for point in points
    ]
    pairs = list(zip(values, margins, strict=True))
    return go.Scatter(
        x=[point["mean_live_bytes"] / 1e6 for point in points],
        y=values,
        name=name,
        mode="lines+markers",
        marker={"size": 8},
        line=line,
        error_y={
            "array": [value * math.expm1(margin) for value, margin in pairs],
            "arrayminus": [-value * math.expm1(-margin) for value, margin in pairs],
            "width": 3,
            "thickness": 1,
        },
    )
