"""Events: values that can't be changed and that JSON carries whole."""

from __future__ import annotations

import dataclasses
import json
from typing import get_args

import pytest
from fake_engine import FakeEngine

from fastinfer.events import Compressed, Event, Finished, Role, Started, Step, to_json

COMPRESSED = Compressed(
    role=Role.TARGET, after_step=3, entries_before=8, entries_after=4, bytes_before=80,
    bytes_after=40, allocated_before=99, allocated_after=50, compress_ms=0.5,
)  # fmt: skip
EVENTS = [*FakeEngine().events(), COMPRESSED]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_json_carries_every_field(event: Event) -> None:
    record = json.loads(json.dumps(to_json(event)))
    fields = {field.name for field in dataclasses.fields(event)}
    assert set(record) == {"type"} | fields
    assert record["type"] == type(event).__name__.lower()


def test_json_of_a_step_names_roles_and_origins_by_plain_words() -> None:
    step = next(event for event in EVENTS if isinstance(event, Step) and event.index == 1)
    record = json.loads(json.dumps(to_json(step)))
    origins = [token["origin"] for token in record["tokens"]]
    assert origins == ["draft", "intermediate", "resampled", "bonus"]
    assert record["stages"][0]["role"] == "target"
    assert record["cache_tokens"] == {"draft": 8, "target": 9}


def test_every_kind_of_event_has_a_type_of_its_own() -> None:
    names = {to_json(event)["type"] for event in EVENTS}
    assert names == {"started", "step", "compressed", "finished"}
    assert set(get_args(Event)) == {Started, Step, Compressed, Finished}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_can_t_be_changed(event: Event) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(event, dataclasses.fields(event)[0].name, None)
