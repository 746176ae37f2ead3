"""The engine that a page or a server uses, and another preset loaded while it works on.

A stream keeps the engine that it began with, so a change of engine disturbs no stream, and an old
engine's memory is free once its last stream has ended.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.events import Event
from fastinfer.info import EngineInfo
from fastinfer.models.catalog import preset_named
from fastinfer.models.devices import free_bytes, release
from fastinfer.models.hub import Fetched, Progress
from fastinfer.models.inventory import needed_bytes
from fastinfer.models.sources import locate

logger = logging.getLogger(__name__)

ROOM_SECONDS = 30.0  # for the last streams of an engine that makes room
POLL_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class LoadState:
    """What the shelf is doing. `error` is why the last load failed; the next one clears it."""

    loading: str | None = None  # the preset on its way
    fetched: Fetched | None = None  # how far its download is
    error: str | None = None


class EngineShelf:
    """Holds the engine in use and puts another in its place; any thread may call any method.

    First the files: a preset that can't be fetched changes nothing. Then room: where old and new
    don't fit side by side, the old one goes first, and comes back if the new one fails to load.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        dtype: str = "auto",
        device: str = "auto",
        load_engine: Callable[..., Engine] = load,
    ) -> None:
        """`dtype` and `device` are for what comes after; `load_engine` is as `engine.load`."""
        self._engine: Engine | None = engine
        self._preset = engine.info.preset
        self._options = {"dtype": dtype, "device": device}
        self._load_engine = load_engine
        self._state = LoadState()
        self._changed = threading.Condition()

    @property
    def engine(self) -> Engine:
        """The engine in use.

        Raises `ConfigError` while none is in memory: for the time that a large one takes to come
        in the place of another.
        """
        with self._changed:
            if self._engine is None:
                raise ConfigError("preset", "no model is in memory just now; try again in a moment")
            return self._engine

    @property
    def state(self) -> LoadState:
        """What is going on."""
        with self._changed:
            return self._state

    def load_in_background(self, preset: str, progress: Progress | None = None) -> None:
        """Begin to load a preset; `state` and `progress` tell how far it is.

        Raises `ConfigError` for an unknown preset, and while another is being loaded.
        """
        preset_named(preset)
        with self._changed:
            if self._state.loading is not None:
                raise ConfigError(
                    "preset", f"{self._state.loading} is being loaded; wait until it is here"
                )
            if self._engine is not None and preset == self._preset:
                self._state = LoadState()
                return
            self._state = LoadState(loading=preset)
            threading.Thread(
                target=self._run, args=(preset, progress), daemon=True, name=f"load-{preset}"
            ).start()

    def wait(self, timeout: float | None = None) -> LoadState:
        """The state once nothing is being loaded any longer, or when `timeout` seconds are over."""
        with self._changed:
            self._changed.wait_for(lambda: self._state.loading is None, timeout)
            return self._state

    def _run(self, preset: str, progress: Progress | None) -> None:
        """The thread: whatever happens, its end is told in the state."""
        error: str | None = None
        try:
            self._change(preset, progress)
        except ConfigError as reason:
            error = str(reason)
        except Exception as reason:  # broken files, memory that runs out on a device
            logger.exception("%s was not loaded", preset)
            error = f"preset: {preset} could not be loaded: {' '.join(str(reason).split())[:200]}"
        with self._changed:
            self._state = LoadState(error=error)
            self._changed.notify_all()

    def _change(self, preset: str, progress: Progress | None) -> None:
        def hear(state: Fetched) -> None:
            with self._changed:
                self._state = dataclasses.replace(self._state, fetched=state)
            if progress is not None:
                progress(state)

        models = preset_named(preset).models
        folders = [locate(role, model.source, hear) for role, model in models.items()]
        needed = needed_bytes(folders, **self._options)
        free = free_bytes(self._options["device"])
        if free is None or needed <= free:
            self._use(self._load_engine(preset, **self._options), preset)
        else:
            self._exchange(preset, needed, free)

    def _exchange(self, preset: str, needed: int, free: int) -> None:
        """The old engine goes first; it comes back where the new one fails."""
        restore = self._make_room(preset, needed, free)
        try:
            self._wait_for_room(needed)
            self._use(self._load_engine(preset, **self._options), preset)
        except BaseException:
            self._use(restore(), self._preset)
            raise

    def _make_room(self, preset: str, needed: int, free: int) -> Callable[[], Engine]:
        """Take the old engine out; returns what brings it back."""
        name = self._preset
        with self._changed:
            folders = {} if self._engine is None else self._engine.folders
            held = needed_bytes(folders.values(), **self._options)
            if not folders or needed > free + held:
                raise ConfigError(
                    "preset",
                    f"{preset} needs about {needed / 1e9:.1f} GB of memory, and "
                    f"{free / 1e9:.1f} GB are free; choose a smaller one",
                )
            self._engine = None
        sources = {role.value: str(folder) for role, folder in folders.items()}
        return lambda: self._load_engine(name, **sources, **self._options)

    def _wait_for_room(self, needed: int) -> None:
        """Until the streams of the engine that went have ended."""
        deadline = time.monotonic() + ROOM_SECONDS
        while True:
            release()
            free = free_bytes(self._options["device"])
            if free is None or needed <= free:
                return
            if time.monotonic() > deadline:
                raise ConfigError(
                    "preset", "the model in use is still busy and leaves no room; try again later"
                )
            time.sleep(POLL_SECONDS)

    def _use(self, engine: Engine, preset: str) -> None:
        with self._changed:
            self._engine, self._preset = engine, preset
            self._changed.notify_all()


class CurrentEngine:
    """The engine in use under an engine's own face, for those who keep one for good.

    Each call goes to the engine that is on the shelf then; see `Engine` for what they do. All raise
    `ConfigError` while none is in memory.
    """

    def __init__(self, shelf: EngineShelf) -> None:
        self._shelf = shelf

    @property
    def info(self) -> EngineInfo:
        """What is loaded."""
        return self._shelf.engine.info

    def check(self, prompt: str | Sequence[int], config: DecodeConfig) -> list[int]:
        """The prompt's token ids; raises `ConfigError` for a request that can't be served."""
        return self._shelf.engine.check(prompt, config)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation."""
        return self._shelf.engine.chat_prompt(messages)

    def stream(
        self, prompt: str | Sequence[int], config: DecodeConfig
    ) -> Generator[Event, None, None]:
        """Decode."""
        return self._shelf.engine.stream(prompt, config)
