"""What one press of Generate makes an engine do."""

from __future__ import annotations

import pytest

from fastinfer.events import Finished, Started, Step
from fastinfer.ui.form import form_to_config
from fastinfer.ui.run import LEAST_BASELINE_TOKENS, Baseline, Phase, Preview, Runs
from tests.browser.fake_engine import FakeEngine
from tests.form_values import values


def wait_until_free(engine: FakeEngine) -> None:
    assert engine.closed.wait(timeout=5), "the engine's stream was never closed"
    assert engine.open_streams == 0


def test_the_baseline_is_the_same_request_made_plain_and_short() -> None:
    engine = FakeEngine()
    config = form_to_config(values(max_new_tokens=500, stop="END", seed="3"))
    messages = list(Runs(engine).messages("once", config))
    baseline, wanted = engine.requests[-2:]
    assert wanted == config
    assert baseline.method == "autoregressive"
    assert baseline.sampling == config.sampling
    assert baseline.max_new_tokens == 128
    assert baseline.stop == () and baseline.ignore_eos  # so that it is long enough to be timed
    assert Baseline(tpot_ms=10.0, num_tokens=101) in messages  # a second behind the first token
    assert isinstance(messages[-1], Finished)


def test_a_slow_models_baseline_ends_after_a_second_but_has_its_least_length() -> None:
    engine = FakeEngine(token_ms=400.0)
    messages = list(Runs(engine).messages("once", form_to_config(values(max_new_tokens=100))))
    assert Baseline(tpot_ms=400.0, num_tokens=LEAST_BASELINE_TOKENS) in messages
    assert engine.open_streams == 0


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


def test_each_step_of_the_baseline_is_previewed_between_its_phase_and_its_result() -> None:
    messages = list(Runs(FakeEngine()).messages("once", form_to_config(values())))
    begin = messages.index(Phase(name="baseline", num_tokens=40))
    end = messages.index(Baseline(tpot_ms=10.0, num_tokens=40))
    seen = messages[begin + 1 : end]
    assert [m.num_tokens for m in seen if isinstance(m, Preview)] == list(range(1, 41))
    assert [m.tpot_ms for m in seen if isinstance(m, Preview)] == [None, *[10.0] * 39]
    assert sum(isinstance(m, Preview) for m in messages) == 40


def test_nothing_of_warm_up_or_baseline_is_an_event() -> None:
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
