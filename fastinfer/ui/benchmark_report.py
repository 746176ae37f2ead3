"""A benchmark -> what the Benchmark tab shows, as plain values. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from fastinfer.evaluation.table import drafting, remarks, rows
from fastinfer.ui.report import Chart, Download, Measuring, Report, Table, chart_layout, rows_of


def report(measuring: Measuring) -> Report:
    """What the tab shows while it goes on, and at the end."""
    document = measuring.document
    base = measuring.report(f"Run {measuring.done} of {measuring.total}")
    if document is None:
        return base
    heads, cells = rows(document)
    plan = document["plan"]
    text = json.dumps(document, indent=1)
    return dataclasses.replace(
        base,
        detail=f"medians, in [] quartiles · {plan['repeats']} × {len(plan['prompts'])} prompts · "
        f"{document['dtype']} on {document['device']}",
        table=Table(heads=("method", *heads[1:]), rows=rows_of(cells)),
        charts=charts(document["results"]),
        notes=tuple(remarks(document)),
        more=tuple(drafting(document)),
        more_title="How the methods drafted",
        download=Download(name="bench.json", text=text) if measuring.finished else None,
    )


def charts(results: Mapping[str, Mapping[str, Any]]) -> tuple[Chart, ...]:
    """TPOT with quartiles, speed-up predicted and achieved, and acceptance by position."""
    names = list(results)
    spreads = [result["tpot_ms"] for result in results.values()]
    bars = {
        "type": "bar", "x": names, "y": [s["median"] for s in spreads], "name": "TPOT",
        "marker": {"color": "var(--fi-line-draft)"}, "hovertemplate": "%{y:.2f} ms<extra></extra>",
        "error_y": {
            "array": [s["q3"] - s["median"] for s in spreads],
            "arrayminus": [s["median"] - s["q1"] for s in spreads],
            "color": "var(--fi-ink)", "thickness": 1.2,
        },
    }  # fmt: skip
    made = [
        Chart(
            name="tpot", title="Time per token", note="Lower is better; lines are quartiles.",
            traces=(bars,), layout=chart_layout(
                y="ms per token", showlegend=False, xaxis={"showgrid": False}
            ),
        )
    ]  # fmt: skip
    measured = {name: r for name, r in results.items() if "achieved_speedup" in r}
    if measured:
        made.append(_speedups(measured))
    lines = _acceptance(results)
    if lines:
        made.append(
            Chart(
                name="acceptance", title="Acceptance by position in the block",
                note="Of the drafted tokens that were tested there.", traces=lines,
                layout=chart_layout(
                    x="position", y="share accepted", xaxis={"dtick": 1}, yaxis={"range": [0, 1.05]}
                ),
            )
        )  # fmt: skip
    return tuple(made)


def _speedups(results: Mapping[str, Mapping[str, Any]]) -> Chart:
    looks = (("predicted", "var(--fi-line-intermediate)"), ("achieved", "var(--fi-line-draft)"))
    return Chart(
        name="speedup", title="Speed-up over plain decoding",
        note="Predicted from acceptance and the costs of a round; 1 is the baseline.",
        traces=tuple(
            {
                "type": "bar", "x": list(results), "name": name, "marker": {"color": color},
                "y": [result.get(f"{name}_speedup") for result in results.values()],
                "hovertemplate": "%{y:.2f}×",
            }
            for name, color in looks
        ),
        layout=chart_layout(
            y="times as fast", barmode="group", xaxis={"showgrid": False}
        ),
    )  # fmt: skip


def _acceptance(results: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    colors = ("var(--fi-line-draft)", "var(--fi-line-target)", "var(--fi-line-intermediate)")
    lines: list[dict[str, Any]] = []
    for name, result in results.items():
        for role, stage in result.get("stages", {}).items():
            shares = stage["acceptance_by_position"]
            if shares:
                dash = "solid" if len(lines) < len(colors) else "dot"
                lines.append({
                    "type": "scatter", "mode": "lines+markers", "name": f"{name}, by the {role}",
                    "x": list(range(1, len(shares) + 1)), "y": shares,
                    "line": {"color": colors[len(lines) % len(colors)], "dash": dash},
                })  # fmt: skip
    return tuple(lines)
