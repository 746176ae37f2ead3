"""Perplexity with presses -> what the Quality tab shows, as plain values. Pure."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.palette import line_look
from fastinfer.evaluation.perplexity import TWO_SIDED_95
from fastinfer.evaluation.ppl_table import remarks, rows
from fastinfer.ui.report import Chart, Download, Measuring, Report, Table, chart_layout, rows_of


def report(measuring: Measuring) -> Report:
    """What the tab shows while it goes on, and at the end."""
    document = measuring.document
    base = measuring.report(f"{measuring.done} of {measuring.total} windows")
    if document is None:
        return base
    heads, cells = rows(document)
    first = next(iter(document["results"].values()))
    plan = document["plan"]
    return dataclasses.replace(
        base,
        detail=f"{document['corpus']['name']} · {first['windows']} windows of {plan['context']}, "
        f"{first['tokens']:,} tokens counted · {document['model']}, {document['dtype']}",
        table=Table(heads=("cache", *heads[1:]), rows=rows_of(cells)),
        charts=(pareto(document["results"]),),
        notes=tuple(remarks(document)),
        download=Download(name="ppl.json", text=json.dumps(document, indent=1))
        if measuring.finished
        else None,
    )


def pareto(results: Mapping[str, Mapping[str, Any]]) -> Chart:
    """Perplexity against the bytes that the cache held, a line for each press."""
    whole_cache = results[UNCOMPRESSED]
    presses = dict.fromkeys(r["press"] for r in results.values() if r["press"])
    traces = []
    for index, press in enumerate(presses):
        points = [whole_cache, *(r for r in results.values() if r["press"] == press)]
        traces.append(_line(press, points, {**line_look(index), "width": 2}))
    traces.append(_line(UNCOMPRESSED, [whole_cache], {"color": "var(--fi-ink)"}))
    return Chart(
        name="pareto",
        title="Quality against memory",
        note="Down and to the left is better. Lines are 95 % intervals of the distance from the "
        "whole cache.",
        traces=tuple(traces),
        layout=chart_layout(
            x="KV cache, MB (mean over the tokens)", y="perplexity", height=420,
            # A press that breaks the model would push the others together on a linear axis.
            yaxis={"type": "log", "rangemode": "normal", "nticks": 8},
            xaxis={"rangemode": "tozero"},
        ),
    )  # fmt: skip


def _line(name: str, points: list[Mapping[str, Any]], line: dict[str, Any]) -> dict[str, Any]:
    points = sorted(points, key=lambda point: float(point["mean_live_bytes"]))
    values = [point["perplexity"] for point in points]
    margins = [
        TWO_SIDED_95 * (point.get("over_uncompressed", {}).get("standard_error") or 0.0)
        for point in points
    ]
    pairs = list(zip(values, margins, strict=True))
    return {
        "type": "scatter", "mode": "lines+markers", "name": name, "line": line,
        "marker": {"size": 8},
        "x": [point["mean_live_bytes"] / 1e6 for point in points],
        "y": values,
        "hovertemplate": "perplexity %{y:.2f} at %{x:.2f} MB",
        "error_y": {
            "array": [value * math.expm1(margin) for value, margin in pairs],
            "arrayminus": [-value * math.expm1(-margin) for value, margin in pairs],
            "width": 3, "thickness": 1,
        },
    }  # fmt: skip
