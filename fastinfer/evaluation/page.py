"""What every report is made of: a page that needs no network, a picture, and the folder for them.

Names come from files and are untrusted: all are escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from fastinfer.config import ConfigError

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .3rem .7rem; text-align: right; white-space: nowrap }}
th:first-child, td:first-child {{ text-align: left }}
tr {{ border-bottom: 1px solid #ccc }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{setting}</p>
<div class="wide">{table}</div>
<ul>{remarks}</ul>
{charts}
<details><summary>Everything, as JSON</summary><pre>{document}</pre></details>
</body>
</html>
"""


def page(
    *,
    title: str,
    setting: str,
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    remarks: Sequence[str],
    charts: Any,  # a Plotly figure
    document: str,
) -> str:
    """The whole page, Plotly's script embedded."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in cells
    )
    return PAGE.format(
        title=escape(title),
        setting=escape(setting).replace("\n", "<br>"),
        table=f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>",
        remarks="".join(f"<li>{escape(remark)}</li>" for remark in remarks),
        charts=charts.to_html(full_html=False, include_plotlyjs=True),
        document=escape(document),
    )


def write_picture(charts: Any, path: Path) -> str | None:
    """A Plotly figure as a picture, or why there is none: it takes kaleido and a Chromium."""
    try:
        charts.write_image(path, scale=2)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        words = str(error).strip().splitlines()
        reason = words[0] if words else type(error).__name__
        return f"no picture: it takes the package kaleido and a Chromium ({reason[:120]})"
    return None


def make_folder(folder: Path) -> None:
    """Make a folder for reports; raises `ConfigError`. To be called before an hour of measuring."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or "it can't be made"
        raise ConfigError("out", f"{folder}: {reason}") from error
