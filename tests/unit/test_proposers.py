"""Prompt lookup copies what followed the latest occurrence of the ending, and nothing else."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from toys import ResidualRule, TableLM, models, probs_of

from fastinfer.config import GammaConfig, SamplingConfig
from fastinfer.decoding.cost_aware import CostAwareGamma
from fastinfer.decoding.gamma import ConstantGamma
from fastinfer.decoding.proposers import (
    LookupFirstProposer,
    ModelProposer,
    NoDraft,
    PromptLookupProposer,
)
from fastinfer.decoding.protocols import GammaController, Outcome
from fastinfer.decoding.sampling import Law

FREE = ConstantGamma(GammaConfig(policy="constant"))


def test_it_copies_what_followed() -> None:
    proposer = PromptLookupProposer(10, FREE)
    tokens = [1, 2, 3, 4, 5, 9, 1, 2, 3]
    proposer.prefill(tokens)
    draft = proposer.propose(tokens, 4)
    assert draft.token_ids == (4, 5, 9, 1)
    assert all(law.certain for law in draft.laws)
    probs = probs_of(draft.laws)
    assert torch.equal(probs.argmax(-1), torch.tensor(draft.token_ids))
    assert torch.equal(probs.sum(-1), torch.ones(4))


def test_the_longest_ending_wins_then_the_latest() -> None:
    proposer = PromptLookupProposer(10, FREE)
    tokens = [1, 2, 3, 7, 2, 3, 8, 3, 9, 1, 2, 3]
    assert proposer.propose(tokens, 1).token_ids == (7,)
    proposer = PromptLookupProposer(10, FREE, max_ngram=2)
    assert proposer.propose(tokens, 1).token_ids == (8,)
    proposer = PromptLookupProposer(10, FREE, max_ngram=1, min_ngram=1)
    assert proposer.propose(tokens, 1).token_ids == (9,)


def test_nothing_to_copy_is_an_empty_draft() -> None:
    proposer = PromptLookupProposer(10, FREE)
    assert len(proposer.propose([1, 2, 3], 4)) == 0
    assert len(proposer.propose([1, 2, 3, 1, 2], 0)) == 0


def test_one_token_that_came_before_is_no_reason_to_copy() -> None:
    assert len(PromptLookupProposer(10, FREE).propose([1, 2, 3, 1], 4)) == 0
    assert PromptLookupProposer(10, FREE).propose([1, 2, 3, 1, 2], 4).token_ids == (3, 1, 2, 3)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6))
def test_the_index_that_grows_finds_what_a_plain_search_finds(
    tokens: list[int], limit: int
) -> None:
    proposer = PromptLookupProposer(4, FREE)
    for end in range(1, len(tokens) + 1):
        proposed = proposer.propose(tokens[:end], limit).token_ids
    expected: tuple[int, ...] = ()
    for size in (3, 2):
        starts = [
            i
            for i in range(len(tokens) - size)
            if i + size < len(tokens) and tokens[i : i + size] == tokens[len(tokens) - size :]
        ]
        if size <= len(tokens) and starts:
            start = starts[-1] + size
            again = tokens[start:] * limit  # a copy that reaches the end goes on with itself
            expected = tuple(again[:limit])
            break
    assert proposed == expected


def test_a_loop_is_copied_round_and_round() -> None:
    proposer = PromptLookupProposer(10, FREE)
    assert proposer.propose([5, 7, 8, 7, 8], 6).token_ids == (7, 8, 7, 8, 7, 8)


def lookup_first(gamma: GammaController) -> tuple[LookupFirstProposer, TableLM]:
    _, draft, _ = models(vocab_size=5)
    law = Law(SamplingConfig(temperature=0.7), num_prompt_tokens=2)
    asked = ModelProposer(draft, law, ResidualRule(0), gamma)
    return LookupFirstProposer(asked), draft


def test_lookup_first_asks_the_model_where_nothing_repeats() -> None:
    proposer, draft = lookup_first(FREE)
    assert proposer.models == (draft,)
    tokens = [1, 2, 3, 4, 1, 2]
    proposer.prefill(tokens[:2])
    drawn = proposer.propose(tokens, 3)  # two repeated tokens are not enough
    assert len(drawn) == 3 and not drawn.copied
    assert max(law.most for law in drawn.laws) < 1.0
    proposer.rollback(len(tokens))
    tokens.append(3)
    read = draft.num_tokens
    copied = proposer.propose(tokens, 3)
    assert copied.copied and copied.token_ids == (4, 1, 2)
    assert draft.num_tokens == read  # it was not asked
    proposer.rollback(len(tokens))
    assert not proposer.propose([*tokens, 0], 2).copied  # and has read on since


def test_a_copy_does_not_tell_what_the_model_costs() -> None:
    gamma = CostAwareGamma(GammaConfig(policy="cost_aware"))

    def learn(copied: bool, draft_ms: float) -> None:
        gamma.update(
            Outcome(
                num_drafted=2, num_accepted=2, confidences=(1.0, 1.0), draft_ms=draft_ms,
                verify_ms=10.0, copied=copied,
            )
        )  # fmt: skip

    learn(copied=False, draft_ms=6.0)
    before = gamma.acceptance.mean()
    for _ in range(3):
        learn(copied=True, draft_ms=0.01)
    assert gamma._draft_ms() == 3.0
    assert gamma.acceptance.mean() > before  # acceptance has been learnt all the same


def test_no_draft_proposes_nothing() -> None:
    assert len(NoDraft().propose([1, 2], 5)) == 0
    assert NoDraft().models == ()


def test_a_model_stops_drafting_after_an_end_token() -> None:
    _, draft, _ = models(vocab_size=2)
    draft.rows = {(a, b): torch.tensor([9.0, -9.0]) for a in (0, 1) for b in (0, 1)}
    law = Law(SamplingConfig(temperature=0.0), num_prompt_tokens=2)
    proposer = ModelProposer(draft, law, ResidualRule(0), FREE, frozenset([0]))
    assert proposer.propose([1, 1], 6).token_ids == (0,)
