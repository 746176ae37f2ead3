"""Compressed caches: what attention then sees, when it happens, and that drafting changes nothing.

Tiny random models of GPT-NeoX (partial rotation, parallel) and Llama (grouped queries) in float32.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from pressed import (
    PRESSES_AND_POSITIONS,
    Kept,
    own_decoder,
    own_engine,
    plan,
    pressed,
    random_tokens,
    read,
    reference,
    watching,
)
from transformers import LlamaConfig, LlamaForCausalLM

from fastinfer.config import PRESS_NAMES, ConfigError, DecodeConfig
from fastinfer.engine import Engine
from fastinfer.events import Compressed, Event, Finished, Role, Started, Step
from fastinfer.models import compression
from fastinfer.models.pressed_cache import PressedKVCache
from fastinfer.models.session import PREFILL_BLOCK, Session
from fastinfer.models.transformer import TransformerDecoder, from_state_dict
from fastinfer.presses import PRESSES

pytestmark = pytest.mark.integration

FAMILIES = ("neox", "llama")
CLOSE = {"atol": 2e-4, "rtol": 1e-4}


@pytest.fixture(scope="module")
def decoders() -> dict[str, TransformerDecoder]:
    return {family: own_decoder(family) for family in FAMILIES}


@pytest.fixture(scope="module")
def engines() -> dict[str, Engine]:
    return {family: own_engine(family) for family in FAMILIES}


# What attention sees --------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("press", "positions"), PRESSES_AND_POSITIONS)
def test_logits_are_those_of_attention_masked_to_the_kept_entries(
    decoders: dict[str, TransformerDecoder], family: str, press: str, positions: str
) -> None:
    decoder, tokens, kept = decoders[family], random_tokens(44), Kept()
    session = pressed(decoder, plan(press, positions, ratio=0.5, interval=7))
    logits = read(session, tokens, 23, after=watching(session, kept))
    assert sorted(kept) == [23, 30, 37]
    expected = reference(decoder, tokens, kept, positions == "in_cache")[22:]
    torch.testing.assert_close(logits, expected, **CLOSE)


def test_the_reference_can_tell_positions_apart(decoders: dict[str, TransformerDecoder]) -> None:
    decoder, tokens, kept = decoders["llama"], random_tokens(44), Kept()
    session = pressed(decoder, plan("keydiff", "in_cache", ratio=0.5, interval=7))
    logits = read(session, tokens, 23, after=watching(session, kept))
    wrong = reference(decoder, tokens, kept, in_cache=False)[22:]
    assert (logits - wrong).abs().amax() > 0.05


def test_many_moves_in_the_cache_add_up_to_one(decoders: dict[str, TransformerDecoder]) -> None:
    # transformers#35350: keys rotated again and again drift. Here 80 moves of the same entries.
    decoder, tokens, kept = decoders["neox"], random_tokens(110), Kept()
    session = pressed(decoder, plan("streaming", "in_cache", budget=24, interval=1))
    logits = read(session, tokens, 28, block=1, after=watching(session, kept))
    assert len(kept) > 80
    done = max(kept)
    last = reference(decoder, tokens, kept, in_cache=True)[done:]
    torch.testing.assert_close(logits[-len(last) :], last, **CLOSE)


@pytest.mark.parametrize(("press", "positions"), PRESSES_AND_POSITIONS)
def test_a_later_token_never_moves_an_earlier_logit(
    decoders: dict[str, TransformerDecoder], press: str, positions: str
) -> None:
    # The seed project's fused path let the target see the tokens that it judged.
    for family in FAMILIES:
        tokens = random_tokens(48)
        changed = [*tokens[:38], *random_tokens(10, seed=6)]
        its_plan = plan(press, positions, ratio=0.5, interval=7)
        rows = [read(pressed(decoders[family], its_plan), t, 23) for t in (tokens, changed)]
        same = 38 - 23 + 1
        assert torch.equal(rows[0][:same], rows[1][:same])
        assert not torch.allclose(rows[0][same:], rows[1][same:], atol=0.01)


@pytest.mark.parametrize("press", PRESS_NAMES)
def test_refused_tokens_leave_no_trace(decoders: dict[str, TransformerDecoder], press: str) -> None:
    # Queries are rolled back with the entries, or a press would score by tokens that never were.
    tokens = random_tokens(44)
    for family in FAMILIES:
        its_plan = plan(press, ratio=0.5, interval=7)
        clean = pressed(decoders[family], its_plan)
        expected = read(clean, tokens, 23, block=1)
        session = pressed(decoders[family], its_plan)
        rows = [session.forward(tokens[:23], 1)]
        for done in range(23, len(tokens)):
            session.maintain(tokens[: done + 1])
            # A block of six, of which only the first token stands.
            block = [*tokens[: done + 1], *random_tokens(5, seed=done)]
            rows.append(session.forward(block, 6)[:1])
            session.rollback(done + 1)
        torch.testing.assert_close(torch.cat(rows), expected, **CLOSE)
        assert isinstance(clean.cache, PressedKVCache)
        assert isinstance(session.cache, PressedKVCache)
        for layer in range(2):
            assert torch.equal(clean.cache.tokens(layer), session.cache.tokens(layer))


@pytest.mark.parametrize("press", PRESS_NAMES)
def test_a_prompt_in_blocks_is_compressed_as_one(press: str) -> None:
    decoder = own_decoder("llama", context=2 * PREFILL_BLOCK)
    tokens = random_tokens(PREFILL_BLOCK + 150)
    kept = []
    for sizes in ([len(tokens) - 1], [500, 100]):
        session = pressed(decoder, plan(press))
        for size in sizes:
            decoder.forward(torch.tensor(tokens[session.num_tokens :][:size]), session.cache, 1)
        session.maintain(tokens)
        assert isinstance(session.cache, PressedKVCache)
        kept.append([session.cache.tokens(layer) for layer in range(2)])
    assert all(torch.equal(a, b) for a, b in zip(*kept, strict=True))


# When -----------------------------------------------------------------------------------------


def test_a_ratio_is_of_all_tokens_read_and_a_budget_is_kept(
    decoders: dict[str, TransformerDecoder],
) -> None:
    tokens = random_tokens(100)
    seen: list[tuple[int, int]] = []
    session = pressed(decoders["llama"], plan("knorm", ratio=0.25, interval=16))
    read(session, tokens, 40, after=lambda done: seen.append((done, session.cache_tokens())))
    assert seen == [(40, 30), (56, 42), (72, 54), (88, 66)]
    seen.clear()
    budget = pressed(decoders["llama"], plan("knorm", budget=32, interval=16))
    read(budget, tokens, 20, after=lambda done: seen.append((done, budget.cache_tokens())))
    assert seen == [(48, 32), (64, 32), (80, 32), (96, 32)]


def test_what_is_short_is_left_alone(decoders: dict[str, TransformerDecoder]) -> None:
    session = pressed(decoders["neox"], plan("knorm", ratio=0.9, num_sinks=4, num_recent=17))
    read(session, random_tokens(21), 20)
    assert session.cache_tokens() == 21


def test_a_rollback_never_goes_below_what_was_committed(
    decoders: dict[str, TransformerDecoder],
) -> None:
    session = pressed(decoders["neox"], plan("knorm"))
    session.forward(random_tokens(30), 1)
    session.maintain(random_tokens(31))
    with pytest.raises(AssertionError, match="below"):
        session.rollback(29)


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


def test_a_ratio_of_0_is_exactly_no_press(decoders: dict[str, TransformerDecoder]) -> None:
    config = DecodeConfig.from_mapping({"press": "knorm", "compression_ratio": 0})
    assert compression.plan_for(config, Role.TARGET) is None


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


# Memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("press", PRESS_NAMES)
def test_half_removed_is_half_the_bytes(press: str) -> None:
    decoder = own_decoder("llama", context=1100)
    session = pressed(decoder, plan(press))
    tokens = random_tokens(1025)
    session.forward(tokens[:-1], 1)
    full = session.cache_bytes()
    done = session.maintain(tokens)
    assert done is not None and done.bytes_before == full
    assert session.cache_bytes() == full // 2
    # Queries are gone, and the room left over is less than two chunks a layer.
    chunk = full // 1024 * 256
    assert session.cache_allocated() <= full // 2 + 2 * chunk


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
def test_the_process_shrinks_with_the_cache_at_32k_tokens() -> None:
    count = 32 * 1024
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=264, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=8, head_dim=64,
        max_position_embeddings=count + 8,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    decoder = from_state_dict(
        config.to_dict(), model.state_dict(), torch.float32, torch.device("cpu")
    )
    tokens = [i % 250 + 1 for i in range(count + 2)]
    read(pressed(decoder, plan("knorm", interval=9)), tokens[:50], 30)  # what is loaded once
    session = pressed(decoder, plan("knorm", ratio=0.75))
    # Entries as a prompt leaves them, without the square of attention that reading one costs.
    assert isinstance(session.cache, PressedKVCache)
    for new in session.cache.views(count).new:
        new.normal_()
    del new  # it holds on to a whole layer
    session.cache.advance(count)
    live, before = session.cache_bytes(), resident_bytes()
    assert live == 256 * 2**20
    done = session.maintain(tokens[:-1])
    assert done is not None and session.cache_bytes() == live // 4
    freed = before - resident_bytes()
    assert freed > 0.65 * live, f"{freed} of {live} bytes were given back"
    assert session.forward(tokens, 2).isfinite().all()


def test_every_name_has_its_press() -> None:
    assert set(PRESSES) == set(PRESS_NAMES)
