"""Perplexity by hand: what a window adds up, what blocks leave alone, means and their errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fastinfer.config import ConfigError
from fastinfer.evaluation.perplexity import (
    difference,
    mean_and_error,
    summarise,
    token_nats,
    window_loss,
)
from tests.two_tokens import NEVER, TwoTokens, losses, window


def test_two_tokens_by_hand() -> None:
    """After 0: 0, 0, 1, 1 have probabilities 3/4, 3/4, 1/4, 3/4."""
    loss = window_loss(TwoTokens(), window([0, 0, 0, 1, 1], first=1), None)
    expected = -3 * math.log(0.75) - math.log(0.25)
    assert loss.nats == pytest.approx(expected, rel=1e-6)
    assert loss.num_tokens == 4
    result = summarise([loss])
    assert result["perplexity"] == pytest.approx(math.exp(expected / 4), rel=1e-6)
    assert result["bits_per_byte"] == pytest.approx(expected / 4 / math.log(2), rel=1e-6)
    assert result["standard_error"] is None
    assert result["perplexity_95"] is None


def test_the_loss_of_each_token_is_what_a_window_adds_up() -> None:
    ids = [0, 0, 1, 1, 1, 0]
    each = token_nats(TwoTokens(interval=2), ids, 2, 2)
    stays = [ids[i] == ids[i - 1] for i in range(2, len(ids))]
    assert each == pytest.approx([math.log(4 / 3) if stay else math.log(4) for stay in stays])
    assert math.fsum(each) == pytest.approx(window_loss(TwoTokens(), window(ids, 2), None).nats)


def test_live_bytes_are_the_mean_over_the_counted_tokens() -> None:
    """The first counted token is predicted from 3 entries; the others while 3 become 7."""
    loss = window_loss(TwoTokens(), window([0] * 8, first=3), None)
    assert loss.live_bytes == pytest.approx((3 + 4 * (3 + 7) / 2) / 5)


@settings(deadline=None, max_examples=60)
@given(
    ids=st.lists(st.integers(0, 1), min_size=2, max_size=60),
    first=st.integers(1, 59),
    interval=st.none() | st.integers(1, 20),
)
def test_blocks_end_where_a_press_acts_and_change_no_figure(
    ids: list[int], first: int, interval: int | None
) -> None:
    first = min(first, len(ids) - 1)
    model = TwoTokens(interval=interval or NEVER)
    loss = window_loss(model, window(ids, first), interval)
    pairs = itertools.pairwise(ids[first - 1 :])
    expected = sum(-math.log(0.75 if a == b else 0.25) for a, b in pairs)
    assert loss.nats == pytest.approx(expected, rel=1e-5)
    assert model.passes[0] == (0, first)
    ends = [end for _, end in model.passes]
    assert ends[-1] == max(first, len(ids) - 1), "the last token is only predicted"
    if interval is not None:
        assert all(end - start <= interval for start, end in model.passes[1:])
        assert model.maintained == list(range(first + 1, len(ids) + 1, interval))


def test_logits_that_are_not_finite_are_an_error() -> None:
    class Broken(TwoTokens):
        def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
            return super().forward(tokens, num_logits) * float("nan")

    with pytest.raises(FloatingPointError, match="target model's logits are not finite"):
        window_loss(Broken(), window([0, 1, 0], 1), None)


@pytest.mark.parametrize("first", [3, 9])
def test_a_window_longer_than_the_context_is_refused(first: int) -> None:
    with pytest.raises(ConfigError, match="context: is too long: a window of 10 tokens"):
        window_loss(TwoTokens(context=8), window([0] * 10, first), None)


# --- uncertainty ----------------------------------------------------------------------------------


def test_the_error_is_that_of_a_mean_where_windows_are_alike() -> None:
    mean, error = mean_and_error([10.0, 20.0, 30.0], [10, 10, 10])
    assert mean == pytest.approx(2.0)
    assert error == pytest.approx(1.0 / math.sqrt(3))  # sample deviation 1 over root 3


def test_longer_windows_weigh_more() -> None:
    mean, error = mean_and_error([10.0, 60.0], [10, 30])
    assert mean == pytest.approx(70 / 40)
    assert error == pytest.approx(math.sqrt(2 * (7.5**2 + 7.5**2)) / 40)


def test_paired_runs_differ_by_less_than_either_varies() -> None:
    hard_and_easy = losses(50.0, 10.0, 30.0)
    worse = losses(51.0, 11.0, 31.0)
    assert summarise(worse)["standard_error"] > 1.0
    assert difference(worse, hard_and_easy) == {
        "nats_per_token": pytest.approx(0.1),
        "standard_error": pytest.approx(0.0, abs=1e-12),
    }


def test_the_interval_is_about_perplexity() -> None:
    result = summarise(losses(20.0, 30.0, 40.0))
    low, high = result["perplexity_95"]
    error = result["standard_error"]
    assert low == pytest.approx(math.exp(3.0 - 1.96 * error))
    assert high == pytest.approx(math.exp(3.0 + 1.96 * error))
    assert low < result["perplexity"] < high


def test_a_broken_model_does_not_break_the_report() -> None:
    assert math.isfinite(summarise(losses(1e6))["perplexity"])
