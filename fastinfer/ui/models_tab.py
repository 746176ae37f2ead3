"""The Models tab: what there is, what is loaded, and another preset in its place."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence

import gradio as gr

from fastinfer.events import Role
from fastinfer.models.catalog import PRESETS
from fastinfer.models.devices import free_bytes
from fastinfer.models.inventory import Entry, inventory
from fastinfer.shelf import LoadState
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.job import QUIET, checked
from fastinfer.ui.labels import NOTHING
from fastinfer.ui.report import Figure, Report, Table, Verdict
from fastinfer.ui.report_view import report_view
from fastinfer.ui.roles import RoleField, follow
from fastinfer.ui.run import TextEngine
from fastinfer.ui.words import field_words, word

VIEW = "models-view"
POLL_SECONDS = 0.25
GIGABYTE = 1e9


class ModelsHandler:
    """Serves the tab. Loading goes on in the shelf's own thread, whoever looks."""

    def __init__(self, backstage: Backstage) -> None:
        self._shelf = backstage.shelf

    def show(self) -> str:
        """The catalogue as it is now."""
        return self.report(self._shelf.state).to_json()

    def check(self, preset: str) -> None:
        """Begin to load; a slip becomes a toast."""
        checked(self._shelf.load_in_background, preset)

    def watch(self, preset: str) -> Generator[str, None, None]:
        """The catalogue, until nothing is being loaded any more."""
        while (state := self._shelf.state).loading is not None:
            yield self.report(state).to_json()
            time.sleep(POLL_SECONDS)
        yield self.report(state, asked=preset).to_json()

    def report(self, state: LoadState, asked: str | None = None) -> Report:
        """What the tab shows. `asked` is the preset whose loading has just ended."""
        entries = inventory()
        loaded = self.loaded
        return Report(
            state="running" if state.loading else "failed" if state.error else "done",
            title=f"Loading {state.loading}" if state.loading else "Models",
            detail=_fetching(state),
            progress=_share(state),
            verdict=_verdict(state, asked),
            figures=self._figures(),
            table=Table(
                heads=("preset", "models", "here", "to download", "memory", "fits", "licence"),
                rows=tuple(_row(entry, loaded) for entry in entries),
                marked=tuple(i for i, e in enumerate(entries) if e.preset.name == loaded),
                words=True,
            ),
            notes=(
                "Memory is for weights and what lies beside them. A preset that fails to load "
                "leaves the one in use where it is; runs that go on keep their models.",
            ),
        )

    @property
    def loaded(self) -> str | None:
        """The preset in use, if one is in memory."""
        try:
            return str(self._shelf.engine.info.preset)
        except ValueError:  # none in memory, for as long as a large one takes to come
            return None

    def _figures(self) -> tuple[Figure, ...]:
        if self.loaded is None:
            return ()
        info = self._shelf.engine.info
        free = free_bytes("auto")
        models = [
            Figure(
                name=role.value,
                value=_short(info.models[role]),
                help=f"{info.models[role]}; forward: {info.backends.get(role, NOTHING)}",
            )
            for role in (Role.TARGET, Role.INTERMEDIATE, Role.DRAFT)
            if role in info.models
        ]
        return (
            Figure(name="Loaded", value=info.preset),
            *models,
            Figure(name="Device", value=f"{info.device} · {info.dtype}"),
            Figure(name="Context", value=f"{info.context:,} tokens"),
            Figure(name="Free memory", value=NOTHING if free is None else _gigabytes(free)),
        )


def _short(name: str) -> str:
    """A name without its commit."""
    return name.split("@")[0]


def _row(entry: Entry, loaded: str | None) -> tuple[str, ...]:
    preset = entry.preset
    places = set(entry.places.values())
    here = "bundled" if places == {"bundled"} else "yes"
    if "download" in places:
        missing = sum(place == "download" for place in entry.places.values())
        here = "no" if missing == len(entry.places) else f"{missing} missing"
    fits = {True: "yes", False: "no", None: NOTHING}[entry.fits]
    return (
        preset.name + (" (loaded)" if preset.name == loaded else ""),
        preset.summary,
        here,
        _gigabytes(entry.download_bytes) if entry.download_bytes else NOTHING,
        _gigabytes(entry.memory_bytes),
        fits,
        ", ".join(preset.licences),
    )


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / GIGABYTE:.1f} GB" if num_bytes >= 5e7 else f"{num_bytes / 1e6:.0f} MB"


def _fetching(state: LoadState) -> str:
    fetched = state.fetched
    if state.loading is None:
        return ""
    if fetched is None:
        return "looking for its files"
    if fetched.total_bytes and fetched.done_bytes >= fetched.total_bytes:
        return "its files are here; reading them"
    size = f"{fetched.done_bytes / 1e6:,.0f} of {fetched.total_bytes / 1e6:,.0f} MB"
    return f"{fetched.name}: {size if fetched.total_bytes else fetched.note}"


def _share(state: LoadState) -> float | None:
    fetched = state.fetched
    if fetched is None or not fetched.total_bytes:
        return None
    return min(1.0, fetched.done_bytes / fetched.total_bytes)


def _verdict(state: LoadState, asked: str | None) -> Verdict | None:
    if state.error is not None:
        return Verdict(tone="bad", text="Not loaded; what was in use still is", more=state.error)
    if asked is None or state.loading is not None:
        return None
    return Verdict(
        tone="good",
        text=f"{asked} is loaded",
        more="The other tabs use it from now on, and their forms know its models.",
    )


def models_tab(
    engine: TextEngine, backstage: Backstage, tab: gr.Tab, following: Sequence[RoleField]
) -> None:
    """Build the tab in the current Blocks. `following`: fields that know another preset's roles."""
    handler = ModelsHandler(backstage)
    loaded = handler.loaded
    with gr.Row(equal_height=False, elem_classes="fi-page"):
        with gr.Column(scale=2, min_width=330, elem_classes="fi-form"):
            preset = gr.Dropdown(
                list(PRESETS),
                value=loaded if loaded in PRESETS else "nano",
                **field_words("preset"),
                elem_id="models-preset",
            )
            start = gr.Button(word("group_load"), variant="primary", elem_id="models-start")
        with gr.Column(scale=5, min_width=330):
            view = report_view(Report(title="Models"), VIEW)
    off, on = gr.update(interactive=False), gr.update(interactive=True)
    begun = start.click(handler.check, preset, None, concurrency_limit=None, **QUIET)
    watched = begun.success(lambda: off, None, start, queue=False, **QUIET).then(
        handler.watch, preset, view, concurrency_limit=None, **QUIET
    )
    watched.then(lambda: on, None, start, queue=False, **QUIET)
    follow(watched.then, engine, following)
    tab.select(handler.show, None, view, queue=False, **QUIET)
