"""The output law of every method equals the target's, and a wrong rule is found out.

Chi-square against exact enumeration of all outputs of five tokens (long enough for the inner stage
of a cascade to draft). Seeds are fixed, so a result never flickers; on fresh seeds each test would
raise a false alarm once in 10,000 runs (P_LOW). The mutants are the faults of real projects; each
must fall below P_MUTANT, far from P_LOW.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from toys import (
    CoupledRule,
    ResidualRule,
    TableLM,
    Toy,
    all_pairs,
    chi_square_p,
    models,
    token_laws,
)

from fastinfer.config import GammaConfig, SamplingConfig
from fastinfer.decoding import proposers, rounds, verification
from fastinfer.decoding.protocols import Draft
from fastinfer.decoding.token_law import TokenLaw, Uncovered
from fastinfer.decoding.verification import Rule, Verdict
from fastinfer.events import Role

pytestmark = pytest.mark.statistical

SAMPLES = 2500
P_LOW = 1e-4
P_MUTANT = 1e-9

METHODS = ("autoregressive", "speculative", "cascade", "prompt-lookup", "lookup-first")
GAMMAS = (
    GammaConfig(policy="constant", initial=3),
    GammaConfig(policy="aimd", initial=2),
    GammaConfig(policy="additive", initial=3),
    GammaConfig(policy="confidence", threshold=0.6, maximum=4),
    GammaConfig(policy="cost_aware", initial=2, maximum=4),
)
RULES: tuple[Callable[[int], Rule], ...] = (ResidualRule, CoupledRule)


def toy(method: str, **kwargs: object) -> Toy:
    target, draft, intermediate = models()
    return Toy(method, target, draft, intermediate, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "rule"), all_pairs(METHODS, RULES))
def test_the_output_follows_the_target(method: str, rule: Callable[[int], Rule]) -> None:
    assert chi_square_p(toy(method, rule=rule), SAMPLES) > P_LOW


@pytest.mark.parametrize(
    ("method", "gamma"), all_pairs(("speculative", "cascade"), GAMMAS[1:])
)  # fmt: skip
def test_no_gamma_policy_moves_the_law(method: str, gamma: GammaConfig) -> None:
    assert chi_square_p(toy(method, gamma=gamma, rounds=3), SAMPLES) > P_LOW


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingConfig(temperature=0.6, top_k=2),
        SamplingConfig(top_p=0.8),
        SamplingConfig(min_p=0.3, temperature=1.3),
        SamplingConfig(repetition_penalty=1.8, presence_penalty=0.7, frequency_penalty=0.4),
    ],
    ids=["top_k", "top_p", "min_p", "penalties"],
)
@pytest.mark.parametrize("method", ["speculative", "cascade"])
def test_filters_act_at_every_position_of_a_block(method: str, sampling: SamplingConfig) -> None:
    # vllm#42744: min_p reached the bonus token only.
    assert chi_square_p(toy(method, sampling=sampling), SAMPLES) > P_LOW


@pytest.mark.parametrize("method", ["speculative", "cascade"])
def test_an_end_of_sequence_token_inside_a_block_keeps_the_law(method: str) -> None:
    assert chi_square_p(toy(method, end_ids=[2], min_new_tokens=1), SAMPLES) > P_LOW


def test_the_drafts_temperature_does_not_matter() -> None:
    # z-lab/dflash#74: draft and target warped differently, ratio with the wrong law.
    target, draft, intermediate = models()
    sharp = TableLM(Role.DRAFT, 3, draft.seed, 2, scale=8.0)
    assert chi_square_p(Toy("speculative", target, sharp, intermediate), SAMPLES) > P_LOW


# Mutants ------------------------------------------------------------------------------------------


def refuted(method: str = "speculative", **kwargs: object) -> bool:
    return chi_square_p(toy(method, **kwargs), SAMPLES) < P_MUTANT


def test_mutant_residual_replaced_by_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "residual_law", lambda target, draft: target)
    assert refuted()
    assert refuted("cascade")


def test_mutant_only_the_inner_residual_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    # TriForce's middle tier draws from the intermediate after a rejection.
    class Inner(ResidualRule):
        def verify(self, laws: Sequence[TokenLaw], draft: Draft, position: int) -> Verdict:
            right = verification.residual_law
            verification.residual_law = lambda target, draft: target
            try:
                return super().verify(laws, draft, position)
            finally:
                verification.residual_law = right

    original = rounds.speculate

    def wrong_inside(*args: object) -> object:
        *rest, rule = args
        inner = Inner(0)
        inner.generator = rule.generator  # type: ignore[attr-defined]
        return original(*rest, inner)  # type: ignore[arg-type]

    # With the target itself in the middle all that the inner stage says is believed.
    target, draft, _ = models()
    middle = TableLM(Role.INTERMEDIATE, 3, target.seed)
    cascade = Toy("cascade", target, draft, middle)
    assert chi_square_p(cascade, SAMPLES) > P_LOW
    monkeypatch.setattr(proposers, "speculate", wrong_inside)
    assert chi_square_p(cascade, SAMPLES) < P_MUTANT


def test_mutant_laws_shifted_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # CS3602_FINAL_MIX compares the law of token i + 1 with the draft's law of token i.
    right = ResidualRule.verify
    monkeypatch.setattr(
        ResidualRule,
        "verify",
        lambda self, laws, draft, position: right(self, (*laws[-1:], *laws[:-1]), draft, position),
    )
    assert refuted()


def test_mutant_greedy_draft_reported_as_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers#32867: the draft was drawn greedily, the ratio used its softmax.
    class Greedy(ResidualRule):
        def draw(self, law: TokenLaw | Uncovered, position: int) -> int:
            return int(law.probs.argmax())

    right = proposers.ModelProposer.propose

    def greedily(self: proposers.ModelProposer, tokens: list[int], limit: int) -> Draft:
        self.rule = Greedy(0)
        return right(self, tokens, limit)

    monkeypatch.setattr(proposers.ModelProposer, "propose", greedily)
    assert refuted()


def test_mutant_raw_draft_law_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # transformers#47932: drawn from the filtered law, reported the raw one.
    right = proposers.ModelProposer.propose

    def raw(self: proposers.ModelProposer, tokens: list[int], limit: int) -> Draft:
        draft = right(self, tokens, limit)
        rows = [
            self.model.logits([*tokens, *draft.token_ids[:i]]).softmax(-1)  # type: ignore[attr-defined]
            for i in range(len(draft))
        ]
        laws = token_laws(torch.stack(rows)) if rows else ()
        return Draft(token_ids=draft.token_ids, laws=laws, origins=draft.origins)

    monkeypatch.setattr(proposers.ModelProposer, "propose", raw)
    assert refuted(sampling=SamplingConfig(temperature=0.5))


def test_mutant_reseeded_before_every_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    # LLMSpeculativeSampling: one seed set before each uniform makes them all the same number.
    monkeypatch.setattr(ResidualRule, "_uniform", lambda self: random.Random(self.seed).random())
    assert refuted()


def test_mutant_every_draft_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    # vllm-ascend#13766: the uniform was always 0.
    right = verification.drafted_probs

    def all_pass(laws: Sequence[TokenLaw], draft: Draft) -> tuple[list[float], list[float]]:
        target, proposed = right(laws, draft)
        return target, [1e-300] * len(proposed)

    monkeypatch.setattr(verification, "drafted_probs", all_pass)
    assert refuted()


def test_mutant_draft_tokens_dropped_for_their_own_low_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Stopping before a token because of its own value biases what is kept.
    right = proposers.ModelProposer.propose

    def dropping(self: proposers.ModelProposer, tokens: list[int], limit: int) -> Draft:
        draft = right(self, tokens, limit)
        keep = 0
        while keep < len(draft) and draft.laws[keep].probability(draft.token_ids[keep]) > 0.4:
            keep += 1
        self.model.rollback(len(tokens))
        return Draft(
            token_ids=draft.token_ids[:keep], laws=draft.laws[:keep], origins=draft.origins[:keep]
        )

    monkeypatch.setattr(proposers.ModelProposer, "propose", dropping)
    assert refuted()


# Acceptance ---------------------------------------------------------------------------------------


def acceptance_of(
    target: TableLM, draft: TableLM, rule: Callable[[int], Rule]
) -> tuple[float, int]:
    run = Toy(
        "speculative", target, draft, rule=rule, max_new_tokens=500,
        gamma=GammaConfig(policy="constant", initial=4),
    )  # fmt: skip
    tested = accepted = 0
    for seed in range(16):  # a toy reads its whole text again for each token: one long run is slow
        for committed in run.committed(seed=seed):
            tested += committed.round.verdict.num_tested
            accepted += committed.round.verdict.num_accepted
    return accepted / tested, tested


def test_acceptance_is_the_overlap_of_the_laws() -> None:
    # Positions are alike (order 0), so acceptance is exactly sum(min(p, q)); five sigma is allowed.
    target, draft, _ = models(vocab_size=6, order=0)
    p, q = target.logits([]).softmax(-1), draft.logits([]).softmax(-1)
    overlap = float(torch.minimum(p, q).sum())
    rate, tested = acceptance_of(target, draft, ResidualRule)
    assert abs(rate - overlap) < 5 * (overlap * (1 - overlap) / tested) ** 0.5
    total_variation = 1 - overlap
    coupled, tested = acceptance_of(target, draft, CoupledRule)
    bound = (1 - total_variation) / (1 + total_variation)
    assert coupled > bound - 5 * (bound * (1 - bound) / tested) ** 0.5


@pytest.mark.parametrize("rule", RULES)
def test_a_model_drafting_for_itself_is_always_accepted(rule: Callable[[int], Rule]) -> None:
    # mlx-lm#1709 and aprender#2014: acceptance collapsed at temperature > 0 or after a rollback.
    target, _, _ = models(vocab_size=6)
    twin = TableLM(Role.DRAFT, 6, target.seed, target.order)
    rate, _ = acceptance_of(target, twin, rule)
    assert rate == 1.0
