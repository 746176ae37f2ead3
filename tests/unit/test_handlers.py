"""From the form to growing text: validation, baseline, the engine's thread, and its end."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import gradio as gr
import pytest

from fastinfer.config import CompressionConfig, ConfigError, DecodeConfig
from fastinfer.events import Finished, Role, Started, Step
from fastinfer.ui.charts import live_charts
from fastinfer.ui.controls import choices_for, settled
from fastinfer.ui.form import FIELDS, form_to_config, form_values
from fastinfer.ui.handlers import GenerateHandler
from fastinfer.ui.labels import FIELD_LABELS
from fastinfer.ui.link import read_link, write_link
from fastinfer.ui.presets import Preset, fields_of, load_presets, row_of
from fastinfer.ui.run import BASELINE_TOKENS, Baseline, Phase, Runs
from fastinfer.ui.skeleton import skeleton
from fastinfer.ui.throttle import Worker
from fastinfer.ui.words import CHINESE, english
from tests.browser.fake_engine import FakeEngine

FORM: dict[str, Any] = {
    "method": "cascade", "draft": "model", "rule": "residual", "gamma_policy": "aimd", "gamma": 4,
    "gamma_min": "", "gamma_max": 16, "gamma_threshold": 0.4, "inner_gamma": "", "rounds": 2,
    "max_new_tokens": 40, "temperature": 0.8, "top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1,
    "repetition_penalty": 1, "stop": "", "seed": "",
    "intermediate": "model", "press": "none", "compression_ratio": 0.5, "max_cache_tokens": "",
    "press_interval": "", "press_on": ["target"], "press_positions": "original", "press_sinks": 4,
    "shadow_every": 0,
}  # fmt: skip


def values(**changes: Any) -> list[Any]:
    assert set(changes) <= set(FIELDS)
    return [{**FORM, **changes}[name] for name in FIELDS]


def num_tokens(records: list[dict[str, Any]]) -> int:
    return sum(len(record.get("event", {}).get("tokens", ())) for record in records)


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


def test_without_a_press_its_fields_say_nothing() -> None:
    config = form_to_config(values(press="none", max_cache_tokens="7", press_interval="x"))
    assert config.compression is None and config.lossless


def test_the_press_group_becomes_a_compression() -> None:
    config = form_to_config(
        values(
            press="snapkv", compression_ratio=0.25, press_interval="32",
            press_on=["target", "draft"], press_positions="in_cache", press_sinks=2.0,
            shadow_every=3, draft="self",
        )
    )  # fmt: skip
    assert config.compression == CompressionConfig(
        press="snapkv", compression_ratio=0.25, interval=32, apply_to=("target", "draft"),
        positions="in_cache", num_sinks=2,
    )  # fmt: skip
    assert config.draft == "self" and config.shadow_every == 3 and not config.lossless


def test_a_budget_takes_the_place_of_the_ratio() -> None:
    config = form_to_config(values(press="knorm", max_cache_tokens="64"))
    assert config.compression is not None
    assert config.compression.max_cache_tokens == 64
    assert config.compression.compression_ratio is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("compression_ratio", 1), ("max_cache_tokens", "0"), ("press_interval", "often"),
     ("press_on", []), ("press_sinks", -1), ("shadow_every", -1), ("press", "iron")],
)  # fmt: skip
def test_a_bad_press_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        form_to_config(values(**({"press": "knorm"} | {field: value})))
    assert caught.value.field == field


# --- the form and back ---

REQUESTS = (
    {},
    {"method": "cascade", "seed": 2**63 - 1, "stop": ["a\nb", "END"], "inner_gamma": 3},
    {"press": "snapkv", "press_interval": 16, "press_on": ["draft", "target"], "shadow_every": 2},
    {"press": "streaming", "max_cache_tokens": 64, "press_positions": "in_cache"},
    {"draft": "self", "gamma_min": 2, "top_p": 0.9, "rule": "coupled"},
)


@pytest.mark.parametrize("options", REQUESTS)
def test_a_request_and_its_link_fill_the_form_that_makes_it(options: dict[str, Any]) -> None:
    config = DecodeConfig.from_mapping(options)
    shown = form_values(config.to_mapping())
    assert form_to_config(list(shown.values())) == config
    choices = choices_for(set(Role))
    read = read_link("#" + write_link("a+b & c\n海", config.to_mapping()), choices)
    assert read.pop("prompt") == "a+b & c\n海"
    assert form_to_config([read[name] for name in FIELDS]) == config


def test_a_strangers_link_can_only_fill_fields_with_what_they_can_show() -> None:
    choices = choices_for(set(Role))
    link = (
        "prompt=%3Cscript%3E&method=magic&temperature=hot&top_p=nan&gamma=1e999&gamma_max=8"
        "&press_on=draft,everything&press_on_x=1&__class__=x&stop=%24%7Bx%7D&press=none&rule"
    )
    assert read_link(link, choices) == {
        "prompt": "<script>", "gamma_max": 8, "press_on": ["draft"], "stop": "${x}",
        "press": "none",
    }  # fmt: skip
    assert read_link("", choices) == read_link("#", choices) == {}
    assert read_link("prompt=" + "a" * 200_000, choices) == {}


def test_a_link_to_what_is_not_loaded_leaves_that_field_alone() -> None:
    read = read_link("method=cascade&draft=model", choices_for({Role.TARGET}))
    assert read == {}


# --- presets ---


@pytest.mark.parametrize("preset", load_presets(), ids=lambda preset: preset.name)
def test_a_preset_is_a_good_request(preset: Preset) -> None:
    fields = fields_of(load_presets())
    row = row_of(preset, fields)
    config = form_to_config(values(**row))
    wanted = config.to_mapping()
    assert {name: wanted[name] for name in preset.options} == dict(preset.options)
    assert set(preset.options) <= set(fields)


def test_presets_show_prompt_lookup_and_a_press() -> None:
    options = [preset.options for preset in load_presets()]
    assert any(each.get("draft") == "prompt-lookup" for each in options)
    assert any(each.get("press") and each.get("shadow_every") for each in options)


def test_a_preset_without_its_model_takes_what_is_there() -> None:
    choices = choices_for({Role.TARGET})
    settled_row = settled({"method": "cascade", "draft": "model", "press_on": ["target"]}, choices)
    assert settled_row == {
        "method": "speculative", "draft": "prompt-lookup", "press_on": ["target"]
    }  # fmt: skip


# --- words ---


def test_every_word_of_the_form_has_its_chinese() -> None:
    assert set(english()) <= set(CHINESE)
    view = {f"fi_{key}" for key in re.findall(r'data-word="([^"]+)"', skeleton(live_charts()))}
    assert set(CHINESE) == set(english()) | view
    assert all(re.search(r"[一-鿿]|γ|Top-|Min-p|Typical", text) for text in CHINESE.values())


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
    assert num_tokens(records) == 40
    assert records[-1].keys() <= {"text", "bars"} and records[0].keys() == {"open"}


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
