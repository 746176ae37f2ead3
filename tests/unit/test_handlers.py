"""From the form to growing text, and what happens when it breaks or is closed."""

from __future__ import annotations

import json
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import gradio as gr
import pytest
import torch

from fastinfer.events import Event
from fastinfer.ui.form import form_to_config
from fastinfer.ui.handlers import GenerateHandler
from tests.browser.fake_engine import FakeEngine
from tests.form_values import values


def num_tokens(records: list[dict[str, Any]]) -> int:
    return sum(len(record.get("event", {}).get("tokens", ())) for record in records)


def wait_until_free(engine: FakeEngine) -> None:
    assert engine.closed.wait(timeout=5), "the engine's stream was never closed"
    assert engine.open_streams == 0


def test_the_value_only_grows_and_holds_the_whole_text() -> None:
    yielded = list(GenerateHandler(FakeEngine()).generate("once", *values()))
    for earlier, later in pairwise(yielded):
        assert later.startswith(earlier)
    records = [json.loads(line) for line in yielded[-1].splitlines()]
    assert num_tokens(records) == 40
    assert records[-1].keys() <= {"text", "bars"} and records[0].keys() == {"open"}


@pytest.mark.parametrize(("space", "spared"), [(None, 1), ("someone/space", 0)])
def test_a_core_is_left_to_a_browser_that_draws_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, space: str | None, spared: int
) -> None:
    seen: set[int] = set()

    class Counting(FakeEngine):
        def stream(self, *given: Any) -> Generator[Event, None, None]:
            for event in super().stream(*given):
                seen.add(torch.get_num_threads())
                yield event

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("SPACE_ID", raising=False)
    if space is not None:
        monkeypatch.setenv("SPACE_ID", space)
    before = torch.get_num_threads()
    list(GenerateHandler(Counting()).generate("once", *values()))
    assert seen == {max(1, before - spared)} and torch.get_num_threads() == before


def test_two_runs_begin_differently() -> None:
    handler = GenerateHandler(FakeEngine())
    first, second = (next(handler.generate("once", *values())) for _ in range(2))
    assert first.split("\n")[0] != second.split("\n")[0]


def refused(prompt: str | None = "once", **changes: Any) -> str:
    """The toast of a request that is refused, both by the check and by the run itself."""
    engine = FakeEngine()
    handler = GenerateHandler(engine)
    with pytest.raises(gr.Error) as checked:
        handler.check(prompt, *values(**changes))
    with pytest.raises(gr.Error) as run:
        next(handler.generate(prompt, *values(**changes)))
    assert engine.requests == []
    assert checked.value.message == run.value.message
    assert not checked.value.print_exception
    return str(checked.value.message)


def test_a_bad_value_is_one_sentence() -> None:
    assert refused(temperature=-1) == "Temperature: must be from 0 to 100, not -1"
    assert refused(gamma_min="0").startswith("Least γ (gamma_min): must be from 1 to 64")


@pytest.mark.parametrize("prompt", ["", None])
def test_an_empty_prompt_is_refused(prompt: str | None) -> None:
    assert refused(prompt).startswith("Prompt: ")


def test_a_toast_never_carries_markup() -> None:
    toast = refused(seed="<img src=x>")
    assert "&lt;img src=x&gt;" in toast and "<" not in toast


def test_a_good_request_passes_the_check() -> None:
    assert GenerateHandler(FakeEngine()).check("once", *values()) == form_to_config(values())


def test_an_engine_that_breaks_says_so_and_keeps_what_came() -> None:
    engine = FakeEngine()
    handler = GenerateHandler(engine)
    list(handler.generate("once", *values()))  # warm, so that the break comes in the baseline
    engine.fail_at = 5
    seen: list[str] = []
    with pytest.raises(gr.Error, match="not finite"):
        seen.extend(handler.generate("once", *values(method="autoregressive")))
    records = [json.loads(line) for line in seen[-1].splitlines()]
    assert records[-1]["state"] == "failed"
    assert num_tokens(records) == 5
    wait_until_free(engine)


def test_closing_stops_the_engine_and_the_next_run_starts() -> None:
    engine = FakeEngine(pace_s=0.01)
    handler = GenerateHandler(engine)
    running = handler.generate("once", *values(max_new_tokens=2000))
    for _ in range(4):
        next(running)
    running.close()
    wait_until_free(engine)
    engine.pace_s = 0.0
    assert '"state":"done"' in list(handler.generate("once", *values()))[-1]
