"""Log-probabilities of rows of logits."""

from __future__ import annotations

import math

import pytest
import torch

from fastinfer.decoding.logprobs import logprobs_of

LOGITS = torch.tensor([[0.0, 0.0, math.log(2.0)], [5.0, 1.0, 3.0], [9.0, 9.0, 9.0]])


def test_each_token_has_its_own_and_the_likeliest_come_in_order() -> None:
    first, second = logprobs_of(LOGITS, [0, 2], 2)
    assert math.isclose(first.own, math.log(0.25), rel_tol=1e-6)
    assert first.top[0] == (2, pytest.approx(math.log(0.5)))
    assert [token_id for token_id, _ in second.top] == [0, 2]
    assert math.isclose(second.top[1][1], second.own)


def test_no_alternatives_and_more_than_there_are() -> None:
    assert [row.top for row in logprobs_of(LOGITS, [0, 1], 0)] == [(), ()]
    assert [len(row.top) for row in logprobs_of(LOGITS, [0], 20)] == [3]


def test_a_law_of_bfloat16_logits_sums_to_one() -> None:
    (row,) = logprobs_of(LOGITS[:1].bfloat16(), [0], 3)
    assert math.isclose(sum(math.exp(value) for _, value in row.top), 1.0, rel_tol=1e-5)
