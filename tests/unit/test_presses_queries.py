"""Presses that look at queries: what they attend to, against formulas without any trick."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor
from views import DIM, HEADS, KV_HEADS, scores_of, still, turn, view_of

from fastinfer.presses import ALL_QUERIES, PRESSES, LayerView, Press, keep_best
from fastinfer.presses.attention import BLOCK, attention_blocks, attention_sum
from fastinfer.presses.expected_attention import ExpectedAttention
from fastinfer.presses.pyramid import Pyramid
from fastinfer.presses.snapkv import SnapKV

with_queries = pytest.mark.parametrize(
    "press",
    [
        SnapKV(num_queries=8), Pyramid(num_queries=8), PRESSES["tova"], PRESSES["observed"],
        PRESSES["expected_attention"],
    ],
    ids=lambda press: press.name,
)  # fmt: skip


@with_queries
def test_an_important_key_is_kept_and_a_mutant_drops_it(press: Press) -> None:
    """Queries point one way on average, and one old key points there too.

    The mutants: scores of the wrong sign, and queries of the wrong sign.
    """
    view = dataclasses.replace(view_of(100), turn=still)
    assert view.queries is not None
    view.queries.mul_(0.1).add_(1.0)
    view.keys.mul_(0.1)
    view.keys[:, 40] = 2.0
    kept = keep_best(scores_of(press, view), 30, num_sinks=4, num_recent=17)
    assert (kept == 40).any(-1).all()
    for wrong in (
        -scores_of(press, view),
        scores_of(press, dataclasses.replace(view, queries=-view.queries)),
    ):
        kept = keep_best(wrong, 30, num_sinks=4, num_recent=17)
        assert not (kept == 40).any()


def plain_attention(view: LayerView) -> Tensor:
    """[heads, window, length], written without any trick."""
    assert view.queries is not None
    heads, window, _ = view.queries.shape
    length = view.keys.shape[1]
    weights = torch.zeros(heads, window, length)
    for head in range(heads):
        keys = view.keys[head // (heads // KV_HEADS)]
        for j in range(window):
            seen = length - window + j + 1
            logits = view.queries[head, j] @ keys[:seen].T * view.scale
            weights[head, j, :seen] = logits.softmax(0)
    return weights


@pytest.mark.parametrize("window", [1, BLOCK, BLOCK + 1, 150])
def test_attention_is_that_of_the_plain_formula(window: int) -> None:
    view = view_of(150, window)
    expected = plain_attention(view).sum(1).unflatten(0, (KV_HEADS, -1))
    torch.testing.assert_close(attention_sum(view), expected)


def test_no_query_looks_at_a_later_key() -> None:
    view = view_of(150, 100)
    before = [block[:, :, :, :-1] for block in attention_blocks(view)]
    view.keys[:, -1] = 1000.0
    after = [block[:, :, :, :-1] for block in attention_blocks(view)]
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1][:, :, :-1], after[1][:, :, :-1])
    assert not torch.equal(before[1][:, :, -1], after[1][:, :, -1])


def test_observed_is_the_mean_over_those_who_could_look() -> None:
    """Every query alike to every key: all entries receive 1 / (what is visible) from each."""
    view = view_of(10, 4)
    view.keys.zero_()
    scores = scores_of(PRESSES["observed"], view)
    shares = [1 / 7, 1 / 8, 1 / 9, 1 / 10]
    expected = [sum(shares) / 4] * 7 + [sum(shares[i:]) / (4 - i) for i in (1, 2, 3)]
    torch.testing.assert_close(scores, torch.tensor(expected).expand(KV_HEADS, -1))


def test_tova_averages_the_last_query_over_all_heads() -> None:
    view = view_of(50, 1)
    expected = plain_attention(view).mean((0, 1)).expand(KV_HEADS, -1)
    torch.testing.assert_close(PRESSES["tova"].score(view), expected)


def test_snapkv_keeps_its_window_newest_first_and_lifts_neighbours() -> None:
    view = view_of(100)
    assert view.queries is not None
    view.queries.mul_(0.1).add_(1.0)
    view.keys.mul_(0.01)
    view.keys[:, 40] = 2.0
    press = SnapKV(num_queries=16, kernel=5)
    scores = scores_of(press, view)
    assert (scores.diff(dim=-1)[:, 84:] > 0).all()
    assert scores[:, 84:].min() > scores[:, :84].max()
    order = scores[:, :84].argsort(-1, descending=True)[:, :5]
    assert (order.sort(-1).values == torch.arange(38, 43)).all()


@pytest.mark.parametrize("window", [1, 20])
def test_expected_attention_is_the_mean_logit_where_queries_are_equal(window: int) -> None:
    """Without spread, what is left is the mean over the future of one query, turned."""
    view = view_of(40, window)
    one = torch.randn(HEADS, 1, DIM, generator=torch.Generator().manual_seed(9))
    own = torch.arange(40 - window, 40)
    view = dataclasses.replace(view, queries=turn(one.expand(-1, window, -1), own))
    press = ExpectedAttention(num_future=100, num_sinks=2)
    future = torch.stack([turn(one[:, 0], torch.tensor(40 + step)) for step in range(100)]).mean(0)
    expected = torch.zeros(KV_HEADS, 38)
    for head in range(HEADS):
        kv_head = head // (HEADS // KV_HEADS)
        logits = view.keys[kv_head, 2:] @ future[head] * view.scale
        expected[kv_head] += logits.softmax(0) / (HEADS // KV_HEADS)
    expected *= view.values[:, 2:].norm(dim=-1)
    scores = press.score(view)
    torch.testing.assert_close(scores[:, 2:], expected)
    assert scores[:, :2].min() > scores[:, 2:].max()


def test_expected_attention_is_the_expectation_of_a_gaussian() -> None:
    """Against the mean of exp(q.k) over 50,000 queries, which errs by less than a percent."""
    num_drawn, num_keys = 50_000, 30
    view = dataclasses.replace(view_of(num_drawn, 1), turn=still)
    view.keys[:, num_keys:] = 0.0  # exp(q.k) is 1 for these, whatever the query
    generator = torch.Generator().manual_seed(3)
    spread = torch.randn(DIM, DIM, generator=generator) * 0.2
    queries = torch.randn(HEADS, num_drawn, DIM, generator=generator) @ spread + 0.3
    keys = view.keys[:, :num_keys].repeat_interleave(HEADS // KV_HEADS, 0)
    received = (queries @ keys.mT * view.scale).exp().mean(1)
    received /= received.sum(-1, keepdim=True) + num_drawn - num_keys
    expected = received.unflatten(0, (KV_HEADS, -1)).mean(1)
    expected *= view.values[:, :num_keys].norm(dim=-1)
    scores = ExpectedAttention(num_sinks=0).score(dataclasses.replace(view, queries=queries))
    torch.testing.assert_close(scores[:, :num_keys], expected, rtol=0.02, atol=0)
    without_spread = queries.mean(1, keepdim=True).expand_as(queries)
    mutant = ExpectedAttention(num_sinks=0).score(dataclasses.replace(view, queries=without_spread))
    assert (mutant[:, :num_keys] / expected - 1).abs().max() > 0.1


def test_a_window_is_what_the_press_asks_for() -> None:
    assert PRESSES["observed"].num_queries == ALL_QUERIES
    assert PRESSES["snapkv"].num_queries == 64
    assert PRESSES["tova"].num_queries == 1
