"""How a measuring command tells what it found: words on stderr, files in a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastinfer.terminal import visible

Document = dict[str, Any]


def say(text: str) -> None:
    """A line for people."""
    print(visible(text), file=sys.stderr, flush=True)


def write_files(
    document: Document,
    folder: Path,
    write_html: Callable[[Document, str, Path], None],
    write_png: Callable[[Document, Path], str | None],
) -> None:
    """`result.json`, `report.html` and, where a picture can be made, `report.png`."""
    pretty = json.dumps(document, indent=1)
    (folder / "result.json").write_text(pretty + "\n", encoding="utf-8")
    write_html(document, pretty, folder / "report.html")
    missing = write_png(document, folder / "report.png")
    if missing is not None:
        say(missing)
    say(f"written to {folder}")
