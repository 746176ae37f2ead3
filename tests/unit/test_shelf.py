"""The shelf: an engine in use, another in its place, and what stays when that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastinfer import shelf as module
from fastinfer.config import ConfigError
from fastinfer.events import Role
from fastinfer.models.hub import Fetched, Progress
from fastinfer.models.sources import ModelLoadError
from fastinfer.shelf import EngineShelf

WAIT = 10.0
GIGA = 10**9


class World:
    """A machine: what loads, what memory it has, what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.failures: dict[str, Exception] = {}
        self.free = [100 * GIGA]  # the last one stays
        self.go_on = threading.Event()
        self.go_on.set()
        monkeypatch.setattr(module, "locate", self.locate)
        monkeypatch.setattr(module, "needed_bytes", lambda folders, **_: GIGA * len(list(folders)))
        monkeypatch.setattr(module, "free_bytes", lambda device: self.next_free())
        monkeypatch.setattr(module, "release", lambda: None)
        monkeypatch.setattr(module, "POLL_SECONDS", 0.0)

    def next_free(self) -> int:
        return self.free.pop(0) if len(self.free) > 1 else self.free[0]

    def locate(self, role: Role, name: str, progress: Progress) -> Path:
        progress(Fetched(name=name, done_bytes=1, total_bytes=2))
        assert self.go_on.wait(WAIT)
        if "locate" in self.failures:
            raise self.failures["locate"]
        return Path(name)

    def load(self, preset: str, **options: Any) -> Any:
        self.calls.append((preset, options))
        if preset in self.failures:
            raise self.failures[preset]
        return engine(preset)


def engine(preset: str) -> Any:
    folders = {role: Path(f"/{preset}/{role.value}") for role in Role}
    return SimpleNamespace(info=SimpleNamespace(preset=preset), folders=folders)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.fixture
def shelf(world: World) -> EngineShelf:
    return EngineShelf(engine("nano"), dtype="float32", device="cpu", load_engine=world.load)


def test_another_preset_takes_the_place(world: World, shelf: EngineShelf) -> None:
    heard: list[Fetched] = []
    shelf.load_in_background("pythia", heard.append)
    assert shelf.wait(WAIT) == module.LoadState()
    assert shelf.engine.info.preset == "pythia"
    assert world.calls == [("pythia", {"dtype": "float32", "device": "cpu"})]
    assert len(heard) == 3
    shelf.load_in_background("pythia")
    assert shelf.state.loading is None, "it is in use already"


def test_the_old_engine_works_on_while_the_new_one_comes(world: World, shelf: EngineShelf) -> None:
    world.go_on.clear()
    shelf.load_in_background("pythia")
    assert shelf.engine.info.preset == "nano"
    with pytest.raises(ConfigError, match="preset: pythia is being loaded; wait"):
        shelf.load_in_background("bloom")
    assert shelf.wait(0.01).loading == "pythia"
    world.go_on.set()
    shelf.wait(WAIT)
    assert shelf.engine.info.preset == "pythia"


def test_progress_shows_in_the_state(world: World, shelf: EngineShelf) -> None:
    heard = threading.Event()
    world.go_on.clear()
    shelf.load_in_background("bloom", lambda state: heard.set())
    assert heard.wait(WAIT)
    fetched = shelf.state.fetched
    assert fetched is not None
    assert (fetched.done_bytes, fetched.total_bytes) == (1, 2)
    world.go_on.set()
    shelf.wait(WAIT)


def test_an_unknown_preset_is_refused_at_once(shelf: EngineShelf) -> None:
    with pytest.raises(ConfigError, match="preset: must be one of"):
        shelf.load_in_background("giant")
    assert shelf.state.loading is None


def fail_to_fetch(world: World) -> None:
    world.failures["locate"] = ModelLoadError("target", "the Hub is out of reach")


def fail_to_load(world: World) -> None:
    world.failures["pythia"] = KeyError("no tensor")


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (fail_to_fetch, "target: the Hub is out of reach"),
        (fail_to_load, "preset: pythia could not be loaded: 'no tensor'"),
    ],
)
def test_a_failed_load_leaves_the_engine_as_it_was(
    world: World, shelf: EngineShelf, fail: Callable[[World], None], words: str
) -> None:
    before = shelf.engine
    fail(world)
    shelf.load_in_background("pythia")
    assert shelf.wait(WAIT).error == words
    assert shelf.engine is before
    world.failures.clear()
    shelf.load_in_background("pythia")
    assert shelf.wait(WAIT).error is None


def test_the_old_engine_makes_room(world: World, shelf: EngineShelf) -> None:
    world.free = [GIGA, GIGA, 2 * GIGA, 4 * GIGA]  # before, then while its last streams end
    seen: list[bool] = []
    load = world.load

    def looking(preset: str, **options: Any) -> Any:
        with pytest.raises(ConfigError, match="no model is in memory just now"):
            _ = shelf.engine
        seen.append(True)
        return load(preset, **options)

    shelf._load_engine = looking
    shelf.load_in_background("pythia")
    assert shelf.wait(WAIT).error is None
    assert seen == [True]
    assert shelf.engine.info.preset == "pythia"


def test_the_old_engine_comes_back_where_the_new_one_fails(
    world: World, shelf: EngineShelf
) -> None:
    world.free = [GIGA, 4 * GIGA]
    world.failures["pythia"] = RuntimeError("out of memory")
    shelf.load_in_background("pythia")
    assert shelf.wait(WAIT).error == "preset: pythia could not be loaded: out of memory"
    assert shelf.engine.info.preset == "nano"
    again, options = world.calls[-1]
    assert again == "nano"
    assert options == {
        "draft": "/nano/draft", "intermediate": "/nano/intermediate", "target": "/nano/target",
        "dtype": "float32", "device": "cpu",
    }  # fmt: skip


def test_streams_that_do_not_end_leave_no_room(
    world: World, shelf: EngineShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOM_SECONDS", 0.0)
    world.free = [GIGA]
    shelf.load_in_background("pythia")
    assert "is still busy and leaves no room" in str(shelf.wait(WAIT).error)
    assert shelf.engine.info.preset == "nano"


def test_what_never_fits_is_refused_before_anything_goes(world: World, shelf: EngineShelf) -> None:
    world.free = [0]
    shelf._engine.folders = {}  # type: ignore[union-attr]
    before = shelf.engine
    shelf.load_in_background("pythia")
    assert "pythia needs about 3.0 GB of memory, and 0.0 GB are free" in str(shelf.wait(WAIT).error)
    assert shelf.engine is before
    assert world.calls == []
