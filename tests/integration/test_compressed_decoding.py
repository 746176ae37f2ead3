"""Decoding over compressed caches: drafting changes nothing, and events tell what was done.

Tiny random models of GPT-NeoX (partial rotation, parallel) and Llama (grouped queries) in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pressed import FAMILIES, PRESSES_AND_POSITIONS, own_engine, random_tokens

from fastinfer.config import PRESS_NAMES, ConfigError, DecodeConfig
from fastinfer.engine import Engine
from fastinfer.events import Compressed, Event, Finished, Role, Started, Step
from fastinfer.models import compression
from fastinfer.models.session import Session

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def engines() -> dict[str, Engine]:
    return {family: own_engine(family) for family in FAMILIES}


def run(engine: Engine, prompt: Sequence[int], **values: Any) -> list[Event]:
    options = {
        "max_new_tokens": 60, "temperature": 0, "seed": 1, "ignore_eos": True, "gamma_max": 6,
        **values,
    }  # fmt: skip
    return list(engine.stream(prompt, DecodeConfig.from_mapping(options)))


def ids(events: list[Event]) -> list[int]:
    return [token.id for event in events if isinstance(event, Step) for token in event.tokens]


@pytest.mark.parametrize("interval", [None, 9])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("press", "positions"), PRESSES_AND_POSITIONS)
def test_speculation_with_a_press_is_the_baseline_with_that_press(
    engines: dict[str, Engine], family: str, press: str, positions: str, interval: int | None
) -> None:
    fused = {"press": press, "press_positions": positions, "press_interval": interval}
    prompt = random_tokens(50)
    baseline = run(engines[family], prompt, method="autoregressive", **fused)
    compressions = [e for e in baseline if isinstance(e, Compressed)]
    assert len(compressions) == (1 if interval is None else 7)
    for method, policy in (
        ("speculative", "constant"), ("speculative", "aimd"), ("speculative", "cost_aware"),
        ("cascade", "aimd"),
    ):  # fmt: skip
        drafted = run(engines[family], prompt, method=method, gamma_policy=policy, **fused)
        assert ids(drafted) == ids(baseline), (method, policy)
        on_target = [e for e in drafted if isinstance(e, Compressed)]
        assert [e.entries_after for e in on_target] == [e.entries_after for e in compressions]
    plain = run(engines[family], prompt, method="autoregressive")
    assert press != "random" or ids(plain) != ids(baseline), "the press changes the text"


def test_mutant_rounds_that_cross_a_trigger(
    engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Compressed alike the target's twin is always right: blocks are long and cross what they can.
    fused = {"press": "random", "press_interval": 9, "press_on": "target,draft"}
    prompt = random_tokens(50)
    baseline = ids(run(engines["llama"], prompt, method="autoregressive", **fused))
    assert ids(run(engines["llama"], prompt, gamma_policy="constant", **fused)) == baseline
    monkeypatch.setattr(Session, "room_before_trigger", lambda self, count: compression.NEVER)
    assert ids(run(engines["llama"], prompt, gamma_policy="constant", **fused)) != baseline


def test_mutant_compression_before_the_rollback(
    engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "rollback", lambda self, count: None)
    with pytest.raises(AssertionError):
        run(engines["llama"], random_tokens(50), press="knorm", press_interval=9)


@pytest.mark.parametrize("role", ["draft", "intermediate", "draft,intermediate"])
@pytest.mark.parametrize("press", PRESS_NAMES)
def test_a_press_on_who_drafts_changes_nothing(
    engines: dict[str, Engine], press: str, role: str
) -> None:
    prompt = random_tokens(50)
    baseline = run(engines["llama"], prompt, method="autoregressive")
    drafted = run(
        engines["llama"], prompt, method="cascade", press=press, press_on=role, press_interval=8
    )
    assert ids(drafted) == ids(baseline)
    assert {e.role.value for e in drafted if isinstance(e, Compressed)} == set(role.split(","))


@pytest.mark.parametrize(
    "own", [{"method": "speculative", "draft": "self"},
            {"method": "cascade", "intermediate": "self"},
            {"method": "cascade", "draft": "self", "intermediate": "self"}],
)  # fmt: skip
def test_the_target_drafts_for_itself(engines: dict[str, Engine], own: dict[str, str]) -> None:
    prompt = random_tokens(70)
    baseline = run(engines["neox"], prompt, method="autoregressive")
    drafted = run(engines["neox"], prompt, **own)
    assert ids(drafted) == ids(baseline)
    started = drafted[0]
    assert isinstance(started, Started) and started.lossless
    role = next(Role(name) for name in ("intermediate", "draft") if own.get(name) == "self")
    assert started.models[role] == "neox (self)"
    squeezed = [e for e in drafted if isinstance(e, Compressed) and e.role is role]
    assert squeezed and squeezed[0].entries_after == 35


def test_self_needs_no_other_model(engines: dict[str, Engine]) -> None:
    models = own_engine("llama")._models
    del models.decoders[Role.DRAFT], models.decoders[Role.INTERMEDIATE]
    alone = Engine(models)
    with pytest.raises(ConfigError, match="draft"):
        run(alone, [1, 2, 3], method="speculative")
    assert len(ids(run(alone, random_tokens(40), method="speculative", draft="self"))) == 60


def test_in_the_cache_generation_passes_the_context() -> None:
    engine = own_engine("neox", context=64)
    options = {
        "method": "speculative", "press": "streaming", "press_on": "target,draft",
        "max_cache_tokens": 32, "press_interval": 8, "max_new_tokens": 200, "gamma_policy": "aimd",
    }  # fmt: skip
    past = run(engine, random_tokens(20), press_positions="in_cache", **options)
    assert len(ids(past)) == 200
    steps = [e for e in past if isinstance(e, Step)]
    assert max(step.cache_tokens[Role.TARGET] for step in steps) <= 32 + 8
    assert max(step.cache_tokens[Role.DRAFT] for step in steps) <= 32 + 8
    assert sum(step.stages[-1].num_accepted for step in steps[-20:]) > 0, "the draft still drafts"
    held = run(engine, random_tokens(20), press_positions="original", **options)
    end = held[-1]
    assert isinstance(end, Finished) and end.reason == "context"
    assert len(ids(held)) == 64 - 20


def test_what_can_t_be_served_is_refused_by_name() -> None:
    engine = own_engine("neox", context=64)
    with pytest.raises(ConfigError, match=r"max_cache_tokens: must be at most 30 here") as caught:
        run(
            engine, [1, 2, 3], press="streaming", press_positions="in_cache",
            max_cache_tokens=40, press_interval=32,
        )  # fmt: skip
    assert caught.value.field == "max_cache_tokens"


# Events and figures ---------------------------------------------------------------------------


def test_events_tell_what_was_saved_and_when(engines: dict[str, Engine]) -> None:
    events = run(
        engines["llama"], random_tokens(100), press="knorm", method="autoregressive",
        press_interval=20, max_new_tokens=50,
    )  # fmt: skip
    started = events[0]
    assert isinstance(started, Started) and not started.lossless
    assert started.lossless_reason == "knorm drops entries of the target's own cache"
    compressed = [e for e in events if isinstance(e, Compressed)]
    assert [(e.entries_before, e.entries_after) for e in compressed] == [
        (100, 50), (70, 60), (80, 70)
    ]  # fmt: skip
    per_entry = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, head_dim, float32
    for event in compressed:
        assert event.role is Role.TARGET
        assert event.bytes_before == event.entries_before * per_entry
        assert event.bytes_after == event.entries_after * per_entry
        assert event.allocated_after >= event.bytes_after
        before = events[events.index(event) - 1]
        after = events[events.index(event) + 1]
        assert isinstance(before, Step) and before.index == event.after_step
        assert isinstance(after, Step) and after.index == event.after_step + 1
        assert before.cache_bytes[Role.TARGET] == event.bytes_before
        assert after.cache_bytes[Role.TARGET] == event.bytes_after + per_entry
    lossless = run(engines["llama"], [1, 2, 3], press="knorm", compression_ratio=0)[0]
    assert isinstance(lossless, Started) and lossless.lossless


def test_the_shadow_is_the_full_cache(engines: dict[str, Engine]) -> None:
    fused = {"press": "random", "compression_ratio": 0.8, "shadow_every": 2}
    steps = [e for e in run(engines["llama"], random_tokens(80), **fused) if isinstance(e, Step)]
    compared = [step for step in steps if step.shadow is not None]
    assert [step.index for step in compared] == [
        s.index for s in steps if s.index and not s.index % 2
    ]
    assert all(step.shadow.num_positions == len(step.tokens) for step in compared if step.shadow)
    assert max(step.shadow.kl_nats for step in compared if step.shadow) > 0.1
    short = {**fused, "compression_ratio": 0.8}
    same = run(engines["llama"], random_tokens(5), max_new_tokens=12, **short)  # nothing to drop
    values = [e.shadow for e in same if isinstance(e, Step) and e.shadow is not None]
    assert values and all(v.kl_nats < 1e-6 and v.top1_agreement == 1.0 for v in values)
    lossless = run(engines["llama"], random_tokens(30), shadow_every=1)
    assert all(e.shadow is None for e in lossless if isinstance(e, Step))
