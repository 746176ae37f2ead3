"""Laws: parity with transformers' warpers, history, blocked ids, and what must never be drawn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from toys import probs_of
from transformers.generation import logits_process as hf

from fastinfer.config import SamplingConfig
from fastinfer.decoding.sampling import Law, confidences


def logits(rows: int = 5, vocab: int = 50, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def law(**options: object) -> Law:
    return Law(SamplingConfig(**options), num_prompt_tokens=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "warpers"),
    [
        ({"temperature": 0.7}, [hf.TemperatureLogitsWarper(0.7)]),
        ({"top_k": 5}, [hf.TopKLogitsWarper(5)]),
        ({"top_p": 0.8}, [hf.TopPLogitsWarper(0.8)]),
        ({"min_p": 0.1}, [hf.MinPLogitsWarper(0.1)]),
        ({"typical_p": 0.7}, [hf.TypicalLogitsWarper(0.7)]),
        (
            {"temperature": 1.3, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.9},
            [
                hf.TemperatureLogitsWarper(1.3), hf.TopKLogitsWarper(20), hf.TopPLogitsWarper(0.9),
                hf.MinPLogitsWarper(0.02), hf.TypicalLogitsWarper(0.9),
            ],
        ),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_each_filter_is_transformers(options: dict[str, object], warpers: list[object]) -> None:
    for seed in range(20):
        rows = logits(seed=seed)
        expected = rows
        for warper in warpers:
            expected = warper(torch.zeros(5, 1, dtype=torch.long), expected)  # type: ignore[operator]
        made = probs_of(law(**options)(rows, [0] * 5))
        assert torch.allclose(made, expected.softmax(-1), atol=1e-6)


def test_repetition_penalty_is_transformers() -> None:
    rows = logits(1)
    history = [3, 3, 7, 11]
    expected = hf.RepetitionPenaltyLogitsProcessor(1.5)(torch.tensor([history]), rows.clone())
    made = probs_of(law(repetition_penalty=1.5)(rows, history))
    assert torch.allclose(made, expected.softmax(-1))


def test_a_block_sees_the_history_that_single_steps_would_see() -> None:
    options = {"repetition_penalty": 1.7, "presence_penalty": 0.5, "frequency_penalty": 0.3}
    made = Law(SamplingConfig(**options), num_prompt_tokens=2)  # type: ignore[arg-type]
    rows, tokens = logits(4, 8), [1, 2, 2, 5, 5]
    together = probs_of(made(rows, tokens))
    for i in range(4):
        alone = probs_of(made(rows[i : i + 1], tokens[: len(tokens) - 3 + i]))
        assert torch.allclose(together[i], alone[0])


def test_presence_and_frequency_count_output_only() -> None:
    made = Law(SamplingConfig(presence_penalty=2.0), num_prompt_tokens=2)
    flat = torch.zeros(1, 4)
    assert torch.allclose(probs_of(made(flat, [1, 1])), torch.full((4,), 0.25))
    assert made(flat, [1, 1, 3])[0].probs.argmin() == 3


@pytest.mark.parametrize("rows", [1, 4])
def test_temperature_zero_is_one_hot(rows: int) -> None:
    laws = law(temperature=0.0, top_p=0.5, min_p=0.9)(logits(rows), [0] * rows)
    best = logits(rows).argmax(-1).tolist()
    assert [each.top for each in laws] == best
    assert all(each.certain and each.most == 1.0 for each in laws)
    made = probs_of(laws)
    assert torch.equal(made, torch.eye(made.shape[1])[best])
    for each, row in zip(laws, made, strict=True):
        assert [each.probability(token) for token in range(len(row))] == row.tolist()


def test_a_tiny_temperature_does_not_overflow() -> None:
    made = probs_of(law(temperature=1e-30)(logits(3) * 100, [0, 0, 0]))
    assert torch.isfinite(made).all()
    assert torch.allclose(made.amax(-1), torch.ones(3))


def test_ties_with_the_kth_stay() -> None:
    made = probs_of(law(top_k=2)(torch.tensor([[3.0, 2.0, 2.0, 1.0]]), [0]))
    assert (made > 0).tolist() == [[True, True, True, False]]


def test_the_token_that_crosses_top_p_stays() -> None:
    rows = torch.tensor([[0.5, 0.3, 0.2]]).log()
    assert (probs_of(law(top_p=0.6)(rows, [0])) > 0).tolist() == [[True, True, False]]


@pytest.mark.parametrize("share", [1e-9, 1e-46, 5e-324])  # the last two are 0 in float32
def test_filters_never_empty_a_law(share: float) -> None:
    for options in (
        {"top_p": share, "min_p": 1.0, "typical_p": share, "top_k": 1},
        {"top_p": share},
        {"typical_p": share},
    ):
        made = probs_of(law(**options)(logits(5), [0] * 5))
        assert torch.allclose(made.sum(-1), torch.ones(5))


def test_the_strongest_penalties_and_the_least_temperature_do_not_overflow() -> None:
    for penalty in (0.01, 10.0):
        made = law(repetition_penalty=penalty, temperature=1.1e-5)(logits(3) * 100, [0, 1, 2])
        assert torch.allclose(probs_of(made).sum(-1), torch.ones(3))


def test_end_ids_are_blocked_until_enough_tokens_came() -> None:
    made = Law(
        SamplingConfig(temperature=0.0), num_prompt_tokens=3, min_new_tokens=2, blocked_ids=[1]
    )
    rows = torch.tensor([[0.0, 9.0, 1.0]]).repeat(4, 1)
    # Rows predict positions 3, 4, 5 and 6: the first two are the first two new tokens.
    assert [each.top for each in made(rows, [0] * 6)] == [2, 2, 1, 1]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"temperature": 0.0}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.5},
        {"min_p": 0.5}, {"typical_p": 0.5}, {"repetition_penalty": 2.0},
    ],
)  # fmt: skip
def test_logits_that_are_not_finite_are_an_error_that_names_the_position(
    value: float, options: dict[str, float]
) -> None:
    rows = logits(3, 8)
    rows[1, 2] = value
    with pytest.raises(FloatingPointError, match="position 5"):
        Law(SamplingConfig(**options), num_prompt_tokens=0)(rows, [0] * 6)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_of_minus_infinity_alone_is_not_finite(temperature: float) -> None:
    rows = torch.full((1, 4), -torch.inf)
    with pytest.raises(FloatingPointError, match="position 6"):
        Law(SamplingConfig(temperature=temperature), num_prompt_tokens=0)(rows, [0] * 6)


def test_the_logits_are_left_as_they_were() -> None:
    rows = logits(3, 8)
    before = rows.clone()
    Law(
        SamplingConfig(top_p=0.5, repetition_penalty=2.0), num_prompt_tokens=0, min_new_tokens=9,
        blocked_ids=[0],
    )(rows, [1, 2, 3])  # fmt: skip
    assert torch.equal(rows, before)


def test_confidence_is_the_law_s_largest_probability() -> None:
    rows = logits()
    made = law(temperature=0.7, top_k=9)(rows, [0] * 5)
    assert confidences(rows, made) == pytest.approx(probs_of(made).amax(-1).tolist())


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"top_k": 1}])
def test_a_one_hot_law_is_no_surer_than_its_softmax(options: dict[str, object]) -> None:
    """Else no policy could tell a clear choice from a near tie when decoding greedily."""
    rows = logits()
    expected = rows.softmax(-1).amax(-1).tolist()
    assert confidences(rows, law(**options)(rows, [0] * 5)) == pytest.approx(expected)
