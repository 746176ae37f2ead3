"""Compare on the bundled models: one text under the coupled rule, and a gap that rounding explains
where texts part."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
import torch

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.evaluation.benchmark import first_difference
from fastinfer.evaluation.parting import BLOCKS, explain
from fastinfer.events import Role
from fastinfer.models.session import Session

pytestmark = pytest.mark.integration

Forward = Callable[[list[int], int], torch.Tensor]

PROMPT = "The old man looked at the sea and said nothing for a long time. At last he"


def config(**options: object) -> DecodeConfig:
    base = {"method": "speculative", "rule": "coupled", "temperature": 0.9, "max_new_tokens": 40}
    return DecodeConfig.from_mapping({**base, "seed": 1, **options})


def read_through(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, reader: Callable[..., torch.Tensor]
) -> None:
    """Every pass of a session goes by `reader(session, its forward, tokens, num_logits)`."""
    right = engine.session

    def session(role: Role, given: DecodeConfig) -> Session:
        made = right(role, given)
        monkeypatch.setattr(made, "forward", partial(reader, made, made.forward))
        return made

    monkeypatch.setattr(engine, "session", session)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32")


@pytest.mark.parametrize("seed", range(3))
def test_in_float32_the_coupled_rule_gives_one_text(engine: Engine, seed: int) -> None:
    texts = {
        engine.generate(PROMPT, config(seed=seed, method=method)).token_ids
        for method in ("autoregressive", "speculative", "cascade")
    }
    assert len(texts) == 1


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_two_tokens_that_are_not_alike_are_no_rounding(engine: Engine, temperature: float) -> None:
    asked = config(temperature=temperature)
    ids = engine.encode(PROMPT)
    ours = engine.generate(PROMPT, asked).token_ids
    theirs = [*ours[:9], (ours[9] + 1) % engine.vocab_size, *ours[10:]]
    parting = explain(engine, ids, ours, theirs, 9, asked)
    assert parting is not None and parting.tokens == (ours[9], theirs[9])
    assert not parting.within_rounding
    assert parting.scores[0] > parting.scores[1]  # what came is what the target likes best


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_tie_is_rounding(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """Logits of the runner-up are lifted to the winner's, but for float32's last digits."""
    asked = config(temperature=temperature, max_new_tokens=4)
    ids = engine.encode(PROMPT)
    ours = engine.generate(PROMPT, asked).token_ids
    twin = (ours[2] + 1) % engine.vocab_size

    def tied(made: Session, forward: Forward, tokens: list[int], num_logits: int) -> torch.Tensor:
        logits = forward(tokens, num_logits).clone()
        logits[:, twin] = logits[:, ours[2]] * (1 + 1e-7)
        return logits

    read_through(engine, monkeypatch, tied)
    if temperature:  # alike in the race too: the same noise
        noise = torch.ones(engine.vocab_size, dtype=torch.float64)
        monkeypatch.setattr(
            "fastinfer.decoding.verification.CoupledRule.noise", lambda self, p, v: noise
        )
    parting = explain(engine, ids, ours, [*ours[:2], twin, ours[3]], 2, asked)
    assert parting is not None and parting.within_rounding


def test_what_blocks_leave_in_the_cache_is_part_of_rounding(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generated text is read again in blocks from its first token, as decoding read it."""
    sizes: list[list[int]] = []

    def noted(made: Session, forward: Forward, tokens: list[int], num_logits: int) -> torch.Tensor:
        if made.num_tokens == 0:
            sizes.append([])
        sizes[-1].append(len(tokens) - made.num_tokens)
        return forward(tokens, num_logits)

    asked = config(temperature=0.0, max_new_tokens=20)
    ids = engine.encode(PROMPT)
    ours = engine.generate(PROMPT, asked).token_ids
    theirs = [*ours[:19], (ours[19] + 1) % engine.vocab_size]
    read_through(engine, monkeypatch, noted)
    assert explain(engine, ids, ours, theirs, 19, asked) is not None
    assert [way[-1] for way in sizes] == list(BLOCKS)
    for way, block in zip(sizes, BLOCKS, strict=True):
        assert sum(way) == len(ids) + 19
        assert way[0] < len(ids) + block  # the prompt at once
        assert set(way[1:]) == {block}
    monkeypatch.setattr("fastinfer.evaluation.parting.REREAD", 4)  # of a long text, the end
    sizes.clear()
    assert explain(engine, ids, ours, theirs, 19, asked) is not None
    assert [way[1:] for way in sizes][:3] == [[1] * 4, [2] * 2, [3]]


@pytest.mark.parametrize("index", [0, 1])
def test_a_parting_at_once(engine: Engine, index: int) -> None:
    asked = config(temperature=0.0, max_new_tokens=2)
    for ids in (engine.encode(PROMPT), engine.encode("A")[:1]):
        ours = engine.generate(ids, asked).token_ids
        theirs = [*ours[:index], (ours[index] + 1) % engine.vocab_size, *ours[index + 1 :]]
        assert explain(engine, ids, ours, theirs, index, asked) is not None


def test_what_needs_no_explanation_has_none(engine: Engine) -> None:
    ids = engine.encode(PROMPT)
    assert explain(engine, ids, [1, 2], [1], 1, config()) is None  # only longer
    assert explain(engine, ids, [1, 2], [1, 3], 1, config(rule="residual")) is None


def test_in_bfloat16_texts_part_only_where_rounding_explains_it() -> None:
    engine = load("nano", dtype="bfloat16")
    ids = engine.encode(PROMPT)
    for seed in range(3):
        asked = config(seed=seed)
        plain = dataclasses.replace(asked, method="autoregressive")
        ours = engine.generate(PROMPT, plain).token_ids
        theirs = engine.generate(PROMPT, asked).token_ids
        place = first_difference(ours, theirs)
        if place is not None:
            parting = explain(engine, ids, ours, theirs, place, asked)
            assert parting is not None and parting.within_rounding
