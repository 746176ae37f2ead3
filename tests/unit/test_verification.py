"""The acceptance rules by exact enumeration: no sampling, no tolerance beyond rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from toys import CoupledRule, ResidualRule, random_laws, token_law, token_laws

from fastinfer.decoding.protocols import Draft
from fastinfer.decoding.token_law import TokenLaw, residual_law
from fastinfer.decoding.verification import Rule
from fastinfer.events import Origin

seeds = st.integers(0, 2**32)


def residual(target: Tensor, draft: Tensor) -> Tensor:
    """Of two rows of probabilities [vocab]."""
    left = residual_law(token_law(target), token_law(draft))
    return torch.from_numpy(left.probs)


def output_law(target: Tensor, draft: Tensor) -> Tensor:
    """What accept-or-resample gives at one position, all outcomes summed."""
    accept = torch.where(draft > 0, target / draft.clamp_min(1e-300), 0.0).clamp_max(1.0)
    accepted = draft * accept
    return accepted + (1 - accepted.sum()) * residual(target, draft)


def block(ids: list[int], probs: Tensor) -> Draft:
    return Draft(token_ids=tuple(ids), laws=token_laws(probs), origins=(Origin.DRAFT,) * len(ids))


@given(seeds)
@settings(max_examples=200, deadline=None)
def test_accepted_mass_and_residual_make_up_the_target(seed: int) -> None:
    target, draft = random_laws(2, 6, seed)
    assert torch.allclose(output_law(target, draft), target, rtol=0, atol=1e-12)


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_two_stages_make_up_the_target(seed: int) -> None:
    # Staged cascade: the inner stage makes tokens of law r exactly, the outer takes r as the draft.
    target, middle, draft = random_laws(3, 6, seed)
    assert torch.allclose(output_law(target, output_law(middle, draft)), target, atol=1e-12)


def test_drawing_from_the_middle_model_after_a_rejection_is_wrong() -> None:
    # TriForce's Middle_Spec, the case in figures: target (.6, .3, .1) comes out as (.58, .29, .13).
    worst = 0.0
    for seed in range(200):
        target, middle, draft = random_laws(3, 6, seed)
        accept = torch.where(draft > 0, middle / draft.clamp_min(1e-300), 0.0).clamp_max(1.0)
        said = draft * accept + (1 - (draft * accept).sum()) * middle  # not the residual
        judged = torch.where(middle > 0, target / middle.clamp_min(1e-300), 0.0).clamp_max(1.0)
        out = said * judged + (1 - (said * judged).sum()) * residual(target, middle)
        worst = max(worst, 0.5 * float((out - target).abs().sum()))
    assert worst > 0.05


def test_residual_falls_back_on_the_target_where_the_laws_agree() -> None:
    law = torch.tensor([0.25, 0.75])
    assert torch.equal(residual(law, law), law)


@given(seeds, st.integers(0, 5), st.floats(0, 1, exclude_max=True))
@settings(max_examples=50, deadline=None)
def test_a_certain_law_is_the_one_hot_law(seed: int, token: int, uniform: float) -> None:
    certain, other = TokenLaw.one_hot(token, 6), token_law(random_laws(1, 6, seed)[0])
    one_hot = token_law(torch.from_numpy(certain.probs))
    assert certain.at(uniform) == one_hot.at(uniform) == token
    assert CoupledRule(seed).draw(certain, 3) == CoupledRule(seed).draw(one_hot, 3)
    for left, right in ((certain, other), (certain, certain), (other, certain)):
        again = [one_hot if law is certain else law for law in (left, right)]
        assert np.array_equal(residual_law(left, right).probs, residual_law(*again).probs)


def test_two_token_case_of_a_greedy_draft() -> None:
    # transformers#32867: q = (.8, .2) drawn greedily and p = (.6, .4) came out as (.75, .25).
    target = torch.tensor([0.6, 0.4], dtype=torch.float64)
    one_hot = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert torch.allclose(output_law(target, one_hot), target)
    softmax_ratio = torch.tensor([0.6 / 0.8, 0.0])
    wrong = softmax_ratio + (1 - softmax_ratio.sum()) * torch.tensor([0.0, 1.0])
    assert torch.allclose(wrong, torch.tensor([0.75, 0.25]))


@pytest.mark.parametrize("rule", [ResidualRule, CoupledRule])
def test_greedy_laws_accept_exactly_the_argmax(rule: type[ResidualRule | CoupledRule]) -> None:
    # jaymody/speculative-sampling#3: one-hot on both sides, or greedy is not greedy.
    one_hot = torch.eye(4)
    laws = one_hot[[2, 0, 3]]  # the target says 2, 0, 3
    for guess, accepted in (([2, 0], 2), ([2, 1], 1), ([1, 0], 0)):
        verdict = rule(0).verify(token_laws(laws), block(guess, one_hot[guess]), position=5)
        assert verdict.num_accepted == accepted
        assert verdict.token_id == [2, 0, 3][accepted]


@pytest.mark.parametrize("rule", [ResidualRule, CoupledRule])
def test_counts(rule: type[ResidualRule | CoupledRule]) -> None:
    one_hot = torch.eye(3)
    laws = one_hot[[0, 0, 0, 0]]
    verdict = rule(0).verify(token_laws(laws), block([0, 1, 0], one_hot[[0, 1, 0]]), position=0)
    assert (verdict.num_accepted, verdict.num_tested) == (1, 2)  # the third was never tested
    whole = rule(0).verify(token_laws(laws), block([0, 0, 0], one_hot[[0, 0, 0]]), position=0)
    assert (whole.num_accepted, whole.num_tested) == (3, 3)


@pytest.mark.parametrize("rule", [ResidualRule, CoupledRule])
def test_verification_leaves_the_draft_law_as_it_was(
    rule: type[ResidualRule | CoupledRule],
) -> None:
    # vllm#16952: a division in place destroyed the draft's probabilities.
    laws, probs = random_laws(3, 6, 1).float(), random_laws(2, 6, 2).float()
    before, laws_before = probs.clone(), laws.clone()
    rule(0).verify(token_laws(laws), block([0, 0], probs), position=0)
    assert torch.equal(probs, before)
    assert torch.equal(laws, laws_before)


def test_a_token_of_target_probability_zero_never_passes() -> None:
    # A uniform of exactly 0 must not accept it.
    class Zero(ResidualRule):
        def _uniform(self) -> float:
            return 0.0

    laws = torch.tensor([[0.0, 1.0], [0.5, 0.5]])
    verdict = Zero(0).verify(token_laws(laws), block([0], torch.tensor([[0.9, 0.1]])), position=0)
    assert (verdict.num_accepted, verdict.token_id) == (0, 1)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1.0 - 2.0**-53])
def test_a_draw_never_has_probability_zero(uniform: float) -> None:
    class Fixed(ResidualRule):
        def _uniform(self) -> float:
            return uniform

    for law in ([0.0, 0.3, 0.0, 0.7, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0], [0.1, 0.2, 0.0]):
        tensor = torch.tensor(law)
        assert tensor[Fixed(0).draw(token_law(tensor), 0)] > 0


@given(seeds, st.integers(1, 300), st.floats(0, 1, exclude_max=True))
@settings(max_examples=200, deadline=None)
def test_a_draw_falls_on_its_tokens_stretch(seed: int, vocab: int, uniform: float) -> None:
    # Some blocks are empty, some tokens impossible, and the law ends inside a block.
    law = torch.rand(vocab, generator=torch.Generator().manual_seed(seed))
    law = law * (law > 0.7) + torch.nn.functional.one_hot(torch.tensor(vocab // 2), vocab)
    law = law / law.sum()
    top = int(law.argmax())
    order = [top, *(token for token in range(vocab) if token != top)]
    ends = law[order].double().cumsum(0)
    token = token_law(law).at(uniform)
    place = order.index(token)
    assert law[token] > 0
    assert float(ends[place]) > uniform - 1e-6
    assert place == 0 or float(ends[place - 1]) <= uniform + 1e-6


@given(seeds, st.integers(2, 300), st.floats(0, 1, exclude_max=True))
@settings(max_examples=200, deadline=None)
def test_a_replacement_falls_on_its_tokens_stretch(seed: int, vocab: int, uniform: float) -> None:
    target, draft = random_laws(2, vocab, seed)
    assume((target > draft).any())
    left = residual_law(token_law(target), token_law(draft))
    token = left.at(uniform)
    ends = left.probs.cumsum()
    assert target[token] > draft[token]
    assert ends[token] > uniform - 1e-6
    assert token == 0 or ends[token - 1] <= uniform + 1e-6


@given(seeds, st.floats(0, 1, exclude_max=True))
@settings(max_examples=50, deadline=None)
def test_where_the_laws_agree_a_replacement_is_the_targets_draw(seed: int, uniform: float) -> None:
    law = token_law(random_laws(1, 6, seed)[0])
    assert residual_law(law, law).at(uniform) == law.at(uniform)


def test_a_law_that_sums_to_a_little_less_than_one_has_no_gap() -> None:
    law, other = token_laws(torch.tensor([[0.0, 0.9999999, 0.0], [0.2, 0.79999, 0.0]]))
    assert law.at(0.99999999) == 1
    assert other.at(0.9999999) == 0


def test_token_id_zero_is_a_token() -> None:
    # LLMSpeculativeSampling raised whenever id 0 was drawn.
    for rule in (ResidualRule(0), CoupledRule(0)):
        assert rule.draw(token_law(torch.tensor([1.0, 0.0])), 0) == 0
        assert rule.draw(TokenLaw.one_hot(0, 2), 0) == 0


@pytest.mark.parametrize("rule", [ResidualRule, CoupledRule])
def test_draws_follow_the_law(rule: type[ResidualRule | CoupledRule]) -> None:
    law = torch.tensor([0.5, 0.0, 0.3, 0.2])
    drawn: Rule = rule(5)
    counts = torch.zeros(4)
    for position in range(4000):
        counts[drawn.draw(token_law(law), position)] += 1
    chi2 = float((((counts - 4000 * law) ** 2)[law > 0] / (4000 * law[law > 0])).sum())
    assert counts[1] == 0
    assert chi2 < 18.4  # 2 degrees of freedom: one false alarm in 10,000 seeds


def test_uniforms_of_one_request_differ() -> None:
    # Reseeding before each draw made every uniform the same number.
    rule = ResidualRule(1)
    assert len({rule._uniform() for _ in range(50)}) == 50


def test_coupled_noise_depends_on_seed_and_position_only() -> None:
    a, b = CoupledRule(7), CoupledRule(7)
    for position in range(300):  # more than are kept at hand
        a.noise(position, 16)
    assert torch.equal(a.noise(3, 16), b.noise(3, 16))
    assert not torch.equal(b.noise(3, 16), b.noise(4, 16))
    assert not torch.equal(b.noise(3, 16), CoupledRule(8).noise(3, 16))


def test_emitting_the_targets_own_draw_is_exact() -> None:
    # mlx-swift-lm#459 held exact match to be biased. Drafts and target draws of unlike noise: the
    # emitted token is the target's own draw, so its law is the target's by construction.
    law = random_laws(1, 5, 3)[0]
    draft = random_laws(1, 5, 4)[0]
    out = torch.zeros(5, dtype=torch.float64)
    for mine in range(5):
        for theirs in range(5):
            emitted = mine  # accepted or not, the target's draw is emitted
            out[emitted] += law[mine] * draft[theirs]
    assert torch.allclose(out, law, atol=1e-12)
