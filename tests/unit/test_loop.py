"""The loop on toy models, whose caches check on every pass that they hold the true sequence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from toys import CoupledRule, ResidualRule, TableLM, Toy, all_pairs, models

from fastinfer.config import GammaConfig, SamplingConfig
from fastinfer.decoding.loop import Limits, decode
from fastinfer.decoding.proposers import ModelProposer
from fastinfer.decoding.protocols import Outcome
from fastinfer.decoding.sampling import Law
from fastinfer.events import Origin, Role

GREEDY = SamplingConfig(temperature=0.0)
METHODS = ("speculative", "cascade", "prompt-lookup", "lookup-first")


def greedy(method: str, prompt: list[int], gamma: GammaConfig, **kwargs: object) -> Toy:
    target, draft, intermediate = models(vocab_size=5)
    return Toy(
        method, target, draft, intermediate, prompt=prompt, gamma=gamma, sampling=GREEDY,
        **kwargs,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(("method", "length", "gamma"), all_pairs(METHODS, (1, 2, 9), (1, 2, 4, 7)))
def test_greedy_is_the_baselines_whatever_drafts(method: str, length: int, gamma: int) -> None:
    prompt = [1, 0, 2, 1, 0, 2, 1, 0, 2][:length]
    policy = GammaConfig(policy="constant", initial=gamma)
    baseline = greedy("autoregressive", prompt, policy, max_new_tokens=40).tokens(0)
    assert greedy(method, prompt, policy, max_new_tokens=40).tokens(0) == baseline


@pytest.mark.parametrize(("method", "policy"), all_pairs(METHODS, ("constant", "aimd", "additive")))
def test_coupled_is_the_baselines_with_the_same_seed(method: str, policy: str) -> None:
    target, draft, intermediate = models(vocab_size=5)
    gamma = GammaConfig(policy=policy, initial=3)  # type: ignore[arg-type]
    sampling = SamplingConfig(temperature=0.9)
    texts = {
        name: Toy(
            name, target, draft, intermediate, rule=CoupledRule, gamma=gamma, sampling=sampling,
            max_new_tokens=60,
        ).tokens(7)
        for name in ("autoregressive", method)
    }  # fmt: skip
    assert texts[method] == texts["autoregressive"]
    assert texts[method] != Toy(
        "autoregressive", target, rule=CoupledRule, sampling=sampling, max_new_tokens=60
    ).tokens(8)


@pytest.mark.parametrize(
    ("method", "count", "gamma"), all_pairs((*METHODS, "autoregressive"), range(1, 7), (1, 4))
)
def test_never_a_token_over_budget(method: str, count: int, gamma: int) -> None:
    # Both seed projects overshot by up to gamma.
    target, draft, intermediate = models()
    toy = Toy(
        method, target, draft, intermediate, max_new_tokens=count,
        gamma=GammaConfig(policy="constant", initial=gamma),
    )  # fmt: skip
    for seed in range(5):
        done = toy.committed(seed)
        assert sum(c.num_tokens for c in done) == count
        assert done[-1].reason == "length"
        assert all(c.num_tokens == len(c.round.token_ids) for c in done)


@pytest.mark.parametrize(("method", "at"), all_pairs(METHODS, range(1, 14)))
def test_the_end_token_cuts_at_every_offset_of_a_block(method: str, at: int) -> None:
    # transformers#47912: an EOS accepted inside a block was run over. The table counts up; token
    # `at` ends the sequence, so it falls on every offset of a block of eight.
    rows = {(i,): 9.0 * torch.eye(16)[(i + 1) % 16] for i in range(16)}
    target, draft, intermediate = (TableLM(r, 16, order=1, rows=dict(rows)) for r in
                                   (Role.TARGET, Role.DRAFT, Role.INTERMEDIATE))  # fmt: skip
    toy = Toy(
        method, target, draft, intermediate, prompt=[15, 0], max_new_tokens=40, end_ids=[at],
        gamma=GammaConfig(policy="constant", initial=8), sampling=GREEDY,
    )  # fmt: skip
    done = toy.committed(0)
    assert toy.tokens(0) == tuple(range(1, at + 1))
    assert [c.reason for c in done if c.reason] == ["eos"]
    assert done[-1].reason == "eos"


def test_the_callers_stop_cuts_inside_a_block() -> None:
    toy = greedy("speculative", [0], GammaConfig(policy="constant", initial=4), max_new_tokens=30)
    whole = toy.tokens(0)
    for stop_after in range(1, 12):
        seen: list[int] = []

        def stop(token: int, seen: list[int] = seen, stop_after: int = stop_after) -> bool:
            seen.append(token)
            return len(seen) == stop_after

        done = toy.committed(0, stop)
        assert tuple(seen) == whole[:stop_after]
        assert done[-1].reason == "stop"


@pytest.mark.parametrize("method", [*METHODS, "autoregressive"])
def test_the_context_ends_generation_without_reading_past_it(method: str) -> None:
    target, draft, intermediate = models()
    target.context, draft.context, intermediate.context = 12, 9, 10  # drafts end before the target
    toy = Toy(method, target, draft, intermediate, prompt=[0, 1, 2], max_new_tokens=100)
    done = toy.committed(1)
    assert sum(c.num_tokens for c in done) == 9
    assert done[-1].reason == "context"


@pytest.mark.parametrize("method", METHODS)
def test_a_prompt_beyond_the_drafts_context_is_decoded_without_drafts(method: str) -> None:
    target, draft, intermediate = models()
    draft.context = intermediate.context = 4
    toy = Toy(method, target, draft, intermediate, prompt=[0, 1, 2, 0, 1, 2, 0], max_new_tokens=5)
    assert len(toy.tokens(0)) == 5


def test_the_first_round_is_the_prefill_for_every_method() -> None:
    for method in ("autoregressive", *METHODS):
        target, draft, intermediate = models()
        first = Toy(method, target, draft, intermediate, max_new_tokens=9).committed(0)[0]
        assert (first.index, first.num_tokens, first.gamma) == (0, 1, 0)
        assert first.round.origins == (Origin.TARGET,)


def test_origins_tell_who_a_token_came_from() -> None:
    target, draft, intermediate = models()
    toy = Toy("cascade", target, draft, intermediate, max_new_tokens=400)
    done = toy.committed(2)
    for committed in done[1:]:
        own = committed.round.origins[-1]
        verdict, block = committed.round.verdict, committed.round.draft
        if len(block) == 0:
            assert own is Origin.TARGET
        elif verdict.num_accepted == len(block):
            assert own is Origin.BONUS
        else:
            assert own is Origin.RESAMPLED
        assert committed.round.origins[:-1] == block.origins[: verdict.num_accepted]
        # In each inner pass only the last token is the middle model's own.
        inner = [s for s in committed.round.stages if s.role is Role.INTERMEDIATE]
        assert block.origins.count(Origin.INTERMEDIATE) == len(inner)
    seen = {origin for c in done for origin in c.round.origins}
    assert seen >= {Origin.DRAFT, Origin.INTERMEDIATE, Origin.RESAMPLED, Origin.BONUS}


def test_a_rejected_token_is_the_target_passes_only_cost() -> None:
    # mlxcel#994: caches rolled back too far cost acceptance without an error. Each target pass
    # commits at least one token, and a twin draft never needs more passes than blocks.
    target, _, _ = models(vocab_size=6)
    twin = TableLM(Role.DRAFT, 6, target.seed)
    toy = Toy(
        "speculative", target, twin, max_new_tokens=1 + 10 * 5,
        gamma=GammaConfig(policy="constant", initial=4),
    )  # fmt: skip
    assert len(toy.committed(0)) == 1 + 10


def test_logits_that_are_not_finite_name_model_and_position() -> None:
    target, draft, _ = models()
    draft.rows[(0, 1)] = torch.tensor([0.0, float("nan"), 1.0])
    target.rows[(0, 1)] = torch.tensor([-99.0, 99.0, -99.0])
    target.rows[(1, 1)] = torch.tensor([99.0, -99.0, -99.0])
    toy = Toy("speculative", target, draft, prompt=[0, 1, 1, 0], max_new_tokens=9)
    target.rows[(1, 0)] = torch.tensor([-99.0, 99.0, -99.0])
    with pytest.raises(FloatingPointError, match="the draft model's logits for position 5"):
        toy.tokens(0)


def test_runs_do_not_disturb_each_other() -> None:
    target, draft, intermediate = models()
    toy = Toy("cascade", target, draft, intermediate, max_new_tokens=30)
    alone = toy.tokens(1), toy.tokens(2)
    assert (toy.tokens(1), toy.tokens(2)) == alone
    assert toy.tokens(1) != toy.tokens(2)


def test_the_rule_is_used_as_given() -> None:
    target, draft, _ = models()
    kwargs = {"sampling": SamplingConfig(), "max_new_tokens": 30}
    assert (
        Toy("speculative", target, draft, rule=ResidualRule, **kwargs).tokens(1)  # type: ignore[arg-type]
        != Toy("speculative", target, draft, rule=CoupledRule, **kwargs).tokens(1)  # type: ignore[arg-type]
    )


class EveryThird:
    """Drafts two tokens in each third round."""

    per_token = False

    def __init__(self) -> None:
        self.rounds = 0

    @property
    def gamma(self) -> int:
        return 2 if self.rounds % 3 == 2 else 0

    def keep_drafting(self, confidences: Sequence[float]) -> bool:
        return True

    def update(self, outcome: Outcome) -> None:
        self.rounds += 1


def test_an_idle_draft_neither_reads_nor_compresses() -> None:
    target, draft, _ = models()
    kept: list[int] = []
    draft.maintain = lambda tokens: kept.append(len(tokens))  # type: ignore[method-assign]
    law, rule, gamma = Law(GREEDY, num_prompt_tokens=2), ResidualRule(0), EveryThird()
    proposer = ModelProposer(draft, law, rule, gamma)
    limits = Limits(max_new_tokens=30, end_ids=frozenset(), should_stop=lambda token: False)
    done, drafted, read = 2, [], []
    for each in decode(target, proposer, [0, 1], law, rule, gamma, limits):
        if len(each.round.draft):
            drafted.append(done)
        read.append(draft.num_tokens)
        done += each.num_tokens
    assert kept == [3, *drafted] and len(kept) > 4  # after the prompt, then where it drafts
    assert len(set(read)) == len(kept)
