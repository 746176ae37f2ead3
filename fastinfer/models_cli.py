"""The commands `models` and `download`, and a download's bar in the terminal."""

from __future__ import annotations

import sys
from types import TracebackType

from tqdm import tqdm

from fastinfer.evaluation.hub_corpora import fetch_corpus
from fastinfer.events import Role
from fastinfer.models.catalog import preset_named
from fastinfer.models.hub import Fetched
from fastinfer.models.inventory import Entry, inventory
from fastinfer.models.sources import locate
from fastinfer.models_options import DownloadChoice
from fastinfer.terminal import visible

HEAD = ("preset", "roles", "here", "download", "memory", "fits", "kind", "licence")


class Bars:
    """A `Progress` for a terminal: one bar per model on stderr, gone with the `with`."""

    def __init__(self) -> None:
        self._bar: tqdm[object] | None = None
        self._name = ""

    def __enter__(self) -> Bars:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def __call__(self, state: Fetched) -> None:
        """Show how far a download is."""
        if state.note:
            self._close()
            print(visible(state.note), file=sys.stderr, flush=True)
            return
        if self._bar is None or state.name != self._name:
            self._close()
            self._name = state.name
            self._bar = tqdm(
                total=state.total_bytes, desc=visible(state.name), unit="B", unit_scale=True,
                file=sys.stderr,
            )  # fmt: skip
        self._bar.update(state.done_bytes - self._bar.n)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def download(choice: DownloadChoice) -> int:
    """Fetch a data set and every model; their places to stdout, models in order of their roles."""
    if choice.dataset is not None:
        print(fetch_corpus(choice.dataset), flush=True)
    names: dict[Role, str] = {}
    if choice.preset is not None:
        models = preset_named(choice.preset).models
        names = {role: model.source for role, model in models.items()}
    with Bars() as bars:
        for role, name in {**names, **choice.overrides}.items():
            folder = locate(role, name, bars)
            print(folder, flush=True)
    return 0


def models(device: str, dtype: str) -> int:
    """Print the presets as this machine has them."""
    print(listing(inventory(device, dtype)))
    return 0


def listing(entries: tuple[Entry, ...]) -> str:
    """One line of figures a preset, and one of words under it."""
    rows = [HEAD, *map(_row, entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    summaries = ["", *(f"  {entry.preset.summary}" for entry in entries)]
    return "\n".join(
        part for line, words in zip(lines, summaries, strict=True) for part in (line, words) if part
    )


def _row(entry: Entry) -> tuple[str, str, str, str, str, str, str, str]:
    preset = entry.preset
    here = sum(place != "download" for place in entry.places.values())
    gated = ", gated" if any(model.gated for model in preset.models.values()) else ""
    return (
        preset.name,
        str(len(preset.models)),
        "bundled" if preset.bundled else f"{here} of {len(preset.models)}",
        size(entry.download_bytes) if entry.download_bytes else "-",
        size(entry.memory_bytes),
        {True: "yes", False: "no", None: "?"}[entry.fits],
        "chat" if preset.chat else "base",
        ", ".join(preset.licences) + gated,
    )


def size(count: int) -> str:
    """Bytes for people: 93 MB, 5.7 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
