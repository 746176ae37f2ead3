"""A run of the fake engine as lines of the stream view, and what tests read off them."""

from __future__ import annotations

import json
from typing import Any

from fastinfer.config import DecodeConfig
from fastinfer.events import Event
from fastinfer.ui.records import Recorder
from tests.browser.fake_engine import FakeEngine


def run(
    method: str = "cascade", length: int = 60, **options: Any
) -> tuple[list[Event], list[dict[str, Any]]]:
    config = DecodeConfig.from_mapping({"method": method, "max_new_tokens": length, **options})
    engine = FakeEngine()
    events = list(engine.stream("once upon a time", config))
    recorder = Recorder(config, engine.info.backends)
    return events, lines("".join(recorder.add(event) for event in events) + recorder.figures())


def lines(text: str) -> list[dict[str, Any]]:
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def steps_of(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    events = [record["event"] for record in records if "event" in record]
    return [event for event in events if event["type"] == "step"]


def points(records: list[dict[str, Any]], chart: str) -> list[list[Any]]:
    return [p for record in records for p in record.get("points", {}).get(chart, [])]


def texts(records: list[dict[str, Any]]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for record in records:
        merged |= record.get("text", {})
    return merged
