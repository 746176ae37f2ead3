"""The three live charts as plain dictionaries that Plotly understands. Pure.

A colour is written `var(--name)`: assets/style.css gives each name a value for either theme, and
the view looks it up, so that charts follow the theme. Traces start empty and are extended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastinfer.events import Role
from fastinfer.ui.labels import ROLE_ORDER

POINT_TRACE, MEDIAN_TRACE, BASELINE_TRACE = range(3)  # of the TPOT chart
UNCOMPRESSED_TRACE, MARK_TRACE = 3, 4  # of the cache chart, after one per role
WINDOW_ROUNDS = 8  # rounds in the rolling median of TPOT

_LINES: dict[Role, dict[str, Any]] = {
    # The three caches grow almost alike, so wide lies below narrow and none hides another.
    Role.TARGET: {"color": "var(--fi-line-target)", "width": 5},
    Role.INTERMEDIATE: {"color": "var(--fi-line-intermediate)", "width": 2.5},
    Role.DRAFT: {"color": "var(--fi-line-draft)", "width": 2, "dash": "dot"},
}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One line of a chart's caption: its colour, its name, and the place of its current value."""

    name: str
    place: str  # "" where there is no value to show
    color: str  # a CSS value
    style: str = "solid"  # solid | dotted | dashed | mark


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart: `name` is how points find it."""

    name: str
    title: str
    unit: str
    keys: tuple[Key, ...]
    traces: tuple[dict[str, Any], ...]

    def to_mapping(self) -> dict[str, Any]:
        """What the view needs to draw it, JSON-ready."""
        return {"name": self.name, "traces": list(self.traces), "layout": layout(self.unit)}


def layout(unit: str) -> dict[str, Any]:
    """Common layout: no fill, thin grid, both axes from zero, x in generated tokens."""
    axis = {
        "gridcolor": "var(--fi-grid)",
        "linecolor": "var(--fi-grid)",
        "zeroline": False,
        "rangemode": "tozero",
        "automargin": False,
    }
    return {
        "height": 190,
        "margin": {"l": 54, "r": 10, "t": 8, "b": 38},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--fi-muted)", "size": 11, "family": "system-ui, sans-serif"},
        "xaxis": {**axis, "title": {"text": "generated tokens", "standoff": 6}},
        "yaxis": {**axis, "title": {"text": unit, "standoff": 6}},
        "hovermode": "x unified",
        "hoverlabel": {
            "bgcolor": "var(--fi-panel)",
            "bordercolor": "var(--fi-grid)",
            "font": {"color": "var(--fi-ink)"},
        },
        "showlegend": False,
        "dragmode": "zoom",
    }


def gamma_chart() -> Chart:
    """Tokens drafted per round, as steps."""
    color = "var(--fi-line-draft)"
    trace = _trace("γ", "%{y} tokens", line={"color": color, "width": 2, "shape": "hv"})
    return Chart(
        name="gamma",
        title="Draft length γ per round",
        unit="tokens",
        keys=(Key(name="γ", place="now.gamma", color=color),),
        traces=(trace,),
    )


def cache_chart() -> Chart:
    """KV entries really held per model, what would be held without a press, and each compression.

    The hover and the caption add megabytes.
    """
    styles = {Role.DRAFT: "dotted"}
    whole, mark = "var(--fi-muted)", "var(--fi-ink)"
    entries = "%{y:,} entries, %{text}"
    dashed = {"color": whole, "width": 1.5, "dash": "dash"}
    return Chart(
        name="cache",
        title="KV cache",
        unit="entries per layer",
        keys=(
            *(
                Key(
                    name=role.value,
                    place=f"now.{role}",
                    color=_LINES[role]["color"],
                    style=styles.get(role, "solid"),
                )
                for role in ROLE_ORDER
            ),
            Key(name="no press", place="", color=whole, style="dashed"),
            Key(name="cut", place="", color=mark, style="mark"),
        ),
        traces=(
            *(_told(_trace(role.value, entries, line=_LINES[role])) for role in ROLE_ORDER),
            _told(_trace("without a press", entries, line=dashed)),
            {
                **_told(_trace("compressed", "%{text}")),
                "mode": "markers",
                "marker": {"color": mark, "size": 7, "symbol": "triangle-down"},
            },
        ),
    )


def tpot_chart() -> Chart:
    """Time per token: each round, the rolling median, and the baseline."""
    point, median, baseline = "var(--fi-point)", "var(--fi-line-draft)", "var(--fi-line-target)"
    traces = {
        POINT_TRACE: {
            **_trace("round", "%{y:.1f} ms"),
            "mode": "markers",
            "marker": {"color": point, "size": 5},
        },
        MEDIAN_TRACE: _trace("rolling median", "%{y:.1f} ms", line={"color": median, "width": 2}),
        BASELINE_TRACE: _trace(
            "baseline", "%{y:.1f} ms", line={"color": baseline, "width": 2, "dash": "dash"}
        ),
    }
    return Chart(
        name="tpot",
        title="Time per token",
        unit="ms per token",
        keys=(
            Key(name=f"median of {WINDOW_ROUNDS} rounds", place="now.tpot", color=median),
            Key(name="baseline", place="", color=baseline, style="dashed"),
        ),
        traces=tuple(traces[index] for index in sorted(traces)),
    )


def live_charts() -> tuple[Chart, ...]:
    """The charts of the Generate tab, in order."""
    return gamma_chart(), cache_chart(), tpot_chart()


def _told(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace, with words of its own at each point."""
    return {**trace, "text": []}


def _trace(name: str, hover: str, line: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [],
        "y": [],
        "hovertemplate": hover,
        **({"line": line} if line else {}),
    }
