"""What a measuring tab shows, as plain values. Pure: no gradio.

The view paints it by textContent alone, so text of models and people needs no escaping here; only
Plotly reads a few tags in its labels, hence `plain_label`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

State = Literal["idle", "running", "done", "failed"]
Tone = Literal["good", "bad", "plain"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number with its name, and one line of help."""

    name: str
    value: str
    help: str = ""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One sentence that matters, good, bad or neither; `more` says why."""

    tone: Tone
    text: str
    more: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Heads and rows of text. The first column is on the left; `marked` rows stand out."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: tuple[int, ...] = ()
    words: bool = False  # whether all columns hold words rather than numbers


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A Plotly chart; colours may be written `var(--name)`. `note` is its caption in words."""

    name: str
    title: str
    traces: tuple[dict[str, Any], ...]
    layout: dict[str, Any]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file that the browser makes of text which it already has."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a report view shows. `progress` is a share, or None where nobody knows."""

    state: State = "idle"
    title: str
    detail: str = ""
    progress: float | None = None
    verdict: Verdict | None = None
    figures: tuple[Figure, ...] = ()
    table: Table | None = None
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()  # what a reader may open, under `more_title`
    more_title: str = ""
    download: Download | None = None

    def to_json(self) -> str:
        """The view's value."""
        return view_json(dataclasses.asdict(self))


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """How far a measurement is, and the document of what is whole so far, if there is one."""

    done: int
    total: int
    document: dict[str, Any] | None
    finished: bool = False

    def report(self, how_far: str) -> Report:
        """A report that says so, for the figures to be put into."""
        return Report(
            state="done" if self.finished else "running",
            title="Measured" if self.finished else how_far,
            progress=self.done / self.total,
        )


def view_json(record: dict[str, Any]) -> str:
    """JSON for a view. "<" is escaped: gradio warns of a script tag in what seems to hold one."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def plain_label(text: str) -> str:
    """Text for a Plotly label, which would read tags and entities in it."""
    return escape(text, quote=False).replace("$", "&#36;")


def chart_layout(
    *, x: str = "", y: str = "", height: int = 260, left: int = 58, bottom: int = 44, **more: Any
) -> dict[str, Any]:
    """The look that the page's charts share: no fill, a thin grid, colours of the theme."""
    axis = {
        "gridcolor": "var(--fi-grid)",
        "linecolor": "var(--fi-grid)",
        "zeroline": False,
        "automargin": True,
    }
    base: dict[str, Any] = {
        "height": height,
        "margin": {"l": left, "r": 12, "t": 8, "b": bottom},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--fi-muted)", "size": 11, "family": "system-ui, sans-serif"},
        "hoverlabel": {
            "bgcolor": "var(--fi-panel)",
            "bordercolor": "var(--fi-grid)",
            "font": {"color": "var(--fi-ink)"},
        },
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        "showlegend": True,
        "xaxis": {**axis, "title": {"text": x, "standoff": 8}},
        "yaxis": {**axis, "title": {"text": y, "standoff": 8}, "rangemode": "tozero"},
    }
    for key, value in more.items():
        base[key] = {**base[key], **value} if isinstance(base.get(key), dict) else value
    return base


def rows_of(cells: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Lists of lists as a table's rows."""
    return tuple(tuple(row) for row in cells)


def shown(text: str) -> str:
    """A token's text where its spaces count: `“·the”`, and `“↵”` for a line break."""
    marks = text.replace(" ", "·").replace("\t", "→").replace("\n", "↵").replace("\r", "↵")
    return f"“{marks}”"
