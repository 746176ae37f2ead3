"""From the form to growing text: validation, baseline, the engine's thread, and its end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import gradio as gr
import pytest

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.events import Finished, Started, Step
from fastinfer.ui.form import FIELDS, form_to_config
from fastinfer.ui.handlers import GenerateHandler
from fastinfer.ui.labels import FIELD_LABELS
from fastinfer.ui.run import BASELINE_TOKENS, Baseline, Phase, Runs
from fastinfer.ui.throttle import Worker
from tests.browser.fake_engine import FakeEngine

FORM: dict[str, Any] = {
    "method": "cascade", "draft": "model", "rule": "residual", "gamma_policy": "aimd", "gamma": 4,
    "gamma_min": "", "gamma_max": 16, "gamma_threshold": 0.4, "inner_gamma": "", "rounds": 2,
    "max_new_tokens": 40, "temperature": 0.8, "top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1,
    "repetition_penalty": 1, "stop": "", "seed": "",
}  # fmt: skip


def values(**changes: Any) -> list[Any]:
    assert set(changes) <= set(FIELDS)
    return [{**FORM, **changes}[name] for name in FIELDS]


def wait_until_free(engine: FakeEngine) -> None:
    assert engine.closed.wait(timeout=5), "the engine's stream was never closed"
    assert engine.open_streams == 0


# --- form ---


def test_the_form_becomes_a_config() -> None:
    config = form_to_config(values(seed=" 7 ", stop="END\n\\n\\n\n", gamma=5.0, top_p=0.9))
    assert config.sampling.seed == 7
    assert config.stop == ("END", "\n\n")
    assert config.gamma.initial == 5 and config.gamma.minimum is None
    assert form_to_config(values(gamma_min="2", inner_gamma="3")).gamma.minimum == 2
    assert config.sampling.top_p == 0.9


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1), ("top_p", 2), ("gamma", 0), ("gamma", 2.5), ("max_new_tokens", 0),
        ("seed", "seven"), ("seed", "-1"), ("seed", "1.5"), ("seed", "²"), ("rounds", 0),
        ("top_k", -1), ("min_p", 1.5), ("typical_p", 0), ("repetition_penalty", 0),
        ("method", "magic"), ("gamma_max", 65), ("gamma_min", "0"), ("gamma_min", "few"),
        ("stop", "\n".join("abcdefghijklmnopq")),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        form_to_config(values(**{field: value}))
    assert caught.value.field == field


def test_an_empty_number_means_the_default() -> None:
    assert form_to_config(values(temperature=None)).sampling.temperature == 1.0


# --- what a run does ---


def test_the_baseline_is_the_same_request_made_plain_and_short() -> None:
    engine = FakeEngine()
    config = form_to_config(values(max_new_tokens=100, stop="END", seed="3"))
    messages = list(Runs(engine).messages("once", config))
    baseline, wanted = engine.requests[-2:]
    assert wanted == config
    assert baseline.method == "autoregressive"
    assert baseline.sampling == config.sampling
    assert baseline.max_new_tokens == BASELINE_TOKENS
    assert baseline.stop == () and baseline.ignore_eos  # so that it is long enough to be timed
    assert Baseline(tpot_ms=10.0, num_tokens=BASELINE_TOKENS) in messages
    assert isinstance(messages[-1], Finished)


def test_a_short_run_has_a_short_baseline() -> None:
    engine = FakeEngine()
    list(Runs(engine).messages("once", form_to_config(values(max_new_tokens=5))))
    assert engine.requests[-2].max_new_tokens == 5


def test_the_baseline_comes_before_the_run_and_warm_up_only_once() -> None:
    engine = FakeEngine()
    runs = Runs(engine)
    config = form_to_config(values())

    def phases() -> list[str]:
        return [m.name for m in runs.messages("once", config) if isinstance(m, Phase)]

    assert phases() == ["warm-up", "warm-up", "baseline", "decoding"]
    assert phases() == ["baseline", "decoding"]


def test_autoregressive_needs_no_baseline() -> None:
    engine = FakeEngine()
    messages = list(Runs(engine).messages("once", form_to_config(values(method="autoregressive"))))
    assert not any(isinstance(m, Baseline) for m in messages)
    assert len(engine.requests) == 2  # warm-up and run


def test_nothing_of_warm_up_or_baseline_is_shown() -> None:
    messages = list(Runs(FakeEngine()).messages("once", form_to_config(values())))
    assert sum(isinstance(m, Started) for m in messages) == 1
    assert sum(len(m.tokens) for m in messages if isinstance(m, Step)) == 40


@pytest.mark.parametrize("after", [0, 3, 14, 60])
def test_closing_the_messages_closes_the_engine(after: int) -> None:
    engine = FakeEngine()
    messages = Runs(engine).messages("once", form_to_config(values(max_new_tokens=200)))
    for _ in range(after):
        next(messages)
    messages.close()
    assert engine.open_streams == 0


# --- the handler ---


def test_the_value_only_grows_and_holds_the_whole_text() -> None:
    yielded = list(GenerateHandler(FakeEngine()).generate("once", *values()))
    for earlier, later in pairwise(yielded):
        assert later.startswith(earlier)
    records = [json.loads(line) for line in yielded[-1].splitlines()]
    assert sum(len(r.get("tokens", [])) for r in records) == 40
    assert records[-1].keys() == {"text"} and records[0].keys() == {"open"}


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
    assert sum(len(r.get("tokens", [])) for r in records) == 5
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


# --- thread and throttle ---


def numbers(count: int, pace_s: float = 0.0) -> Generator[int, None, None]:
    for number in range(count):
        time.sleep(pace_s)
        yield number


def test_batches_keep_every_item_in_order() -> None:
    batches = list(Worker[int](update_s=0.02).batches(numbers(300, 0.0005)))
    assert [n for batch in batches for n in batch] == list(range(300))
    assert 1 < len(batches) < 300


def test_a_fast_job_is_not_yielded_item_by_item() -> None:
    batches = list(Worker[int](update_s=10).batches(numbers(1000)))
    assert len(batches) <= 2  # the first item at once, the rest at the end


def test_silence_gives_empty_batches() -> None:
    release = threading.Event()

    def silent() -> Generator[int, None, None]:
        release.wait(5)
        yield 1

    batches = Worker[int](heartbeat_s=0.01).batches(silent())
    assert next(batches) == [] and next(batches) == []
    release.set()
    assert [n for batch in batches for n in batch] == [1]


def test_the_job_runs_and_is_closed_in_its_own_thread() -> None:
    threads: list[str] = []
    closed = threading.Event()

    def job() -> Generator[int, None, None]:
        try:
            while True:
                threads.append(threading.current_thread().name)
                time.sleep(0.001)
                yield 1
        finally:
            threads.append(threading.current_thread().name)
            closed.set()

    batches = Worker[int](update_s=0.01).batches(job())
    next(batches)
    batches.close()
    assert closed.wait(5)
    assert set(threads) == {"engine"}


def test_an_error_arrives_after_the_items_before_it() -> None:
    def job() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise RuntimeError("broken")

    seen: list[int] = []
    with pytest.raises(RuntimeError, match="broken"):
        for batch in Worker[int]().batches(job()):
            seen.extend(batch)
    assert seen == [1, 2]


def test_one_job_at_a_time() -> None:
    worker = Worker[int](update_s=0.0, heartbeat_s=0.01)
    inside: list[int] = []
    most: list[int] = []

    def job() -> Generator[int, None, None]:
        inside.append(1)
        most.append(len(inside))
        try:
            yield from numbers(20, 0.001)
        finally:
            inside.pop()

    def read() -> None:
        for _ in worker.batches(job()):
            pass

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(10)
    assert len(most) == 4 and max(most) == 1


def test_a_job_stopped_before_its_turn_never_runs() -> None:
    worker = Worker[int](heartbeat_s=0.01)
    started = threading.Event()

    def never() -> Generator[int, None, None]:
        started.set()
        yield 1

    first = worker.batches(numbers(50, 0.005))
    next(first)
    second = worker.batches(never())
    assert next(second) == []  # waiting for its turn
    second.close()
    assert [n for batch in first for n in batch][-1] == 49
    list(worker.batches(numbers(1)))  # takes the turn after the stopped one
    assert not started.is_set()


def test_fields_and_config_agree() -> None:
    assert set(FIELDS) <= set(DecodeConfig().to_mapping())
    assert set(FIELDS) | {"prompt"} == set(FIELD_LABELS)
