"""Compressed caches: what attention then sees, when it happens, and what memory comes back.

Tiny random models of GPT-NeoX (partial rotation, parallel) and Llama (grouped queries) in float32.
"""

from __future__ import annotations

import os

import pytest
import torch
from pressed import (
    FAMILIES,
    PRESSES_AND_POSITIONS,
    Kept,
    own_decoder,
    plan,
    pressed,
    random_tokens,
    read,
    reference,
    watching,
)
from transformers import LlamaConfig, LlamaForCausalLM

from fastinfer.config import PRESS_NAMES, DecodeConfig
from fastinfer.events import Role
from fastinfer.models import compression
from fastinfer.models.pressed_cache import PressedKVCache
from fastinfer.models.transformer import TransformerDecoder, from_state_dict
from fastinfer.presses import PRESSES

pytestmark = pytest.mark.integration

CLOSE = {"atol": 2e-4, "rtol": 1e-4}


@pytest.fixture(scope="module")
def decoders() -> dict[str, TransformerDecoder]:
    return {family: own_decoder(family) for family in FAMILIES}


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
    decoder = own_decoder("llama", context=700)
    tokens = random_tokens(650)
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
    read(session, tokens, 40, after=lambda done: seen.append((done, session.cache_size().tokens)))
    assert seen == [(40, 30), (56, 42), (72, 54), (88, 66)]
    seen.clear()
    budget = pressed(decoders["llama"], plan("knorm", budget=32, interval=16))
    read(budget, tokens, 20, after=lambda done: seen.append((done, budget.cache_size().tokens)))
    assert seen == [(48, 32), (64, 32), (80, 32), (96, 32)]


def test_what_is_short_is_left_alone(decoders: dict[str, TransformerDecoder]) -> None:
    session = pressed(decoders["neox"], plan("knorm", ratio=0.9, num_sinks=4, num_recent=17))
    read(session, random_tokens(21), 20)
    assert session.cache_size().tokens == 21


def test_a_rollback_never_goes_below_what_was_committed(
    decoders: dict[str, TransformerDecoder],
) -> None:
    session = pressed(decoders["neox"], plan("knorm"))
    session.forward(random_tokens(30), 1)
    session.maintain(random_tokens(31))
    with pytest.raises(AssertionError, match="below"):
        session.rollback(29)


def test_a_ratio_of_0_is_exactly_no_press() -> None:
    config = DecodeConfig.from_mapping({"press": "knorm", "compression_ratio": 0})
    assert compression.plan_for(config, Role.TARGET) is None


# Memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("press", PRESS_NAMES)
def test_half_removed_is_half_the_bytes(press: str) -> None:
    decoder = own_decoder("llama", context=1100)
    session = pressed(decoder, plan(press))
    tokens = random_tokens(1025)
    session.forward(tokens[:-1], 1)
    full = session.cache_size().bytes
    done = session.maintain(tokens)
    assert done is not None and done.bytes_before == full
    assert session.cache_size().bytes == full // 2
    # Queries are gone, and the room left over is less than two chunks a layer.
    chunk = full // 1024 * 256
    assert session.cache_size().allocated <= full // 2 + 2 * chunk


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
    live, before = session.cache_size().bytes, resident_bytes()
    assert live == 256 * 2**20
    done = session.maintain(tokens[:-1])
    assert done is not None and session.cache_size().bytes == live // 4
    freed = before - resident_bytes()
    assert freed > 0.65 * live, f"{freed} of {live} bytes were given back"
    assert session.forward(tokens, 2).isfinite().all()


def test_every_name_has_its_press() -> None:
    assert set(PRESSES) == set(PRESS_NAMES)
