"""What every press must hold to, and what those that look at keys alone are for."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from views import DIM, HEADS, KV_HEADS, asked_for, scores_of, view_of

from fastinfer.config import PRESS_NAMES
from fastinfer.presses import PRESSES, Press, keep_best
from fastinfer.presses.hybrid import DIRECTION, Hybrid
from fastinfer.presses.pyramid import Pyramid
from fastinfer.presses.random import Random

everyone = pytest.mark.parametrize("press", PRESSES.values(), ids=list(PRESSES))


def test_the_names_are_those_of_the_config() -> None:
    assert set(PRESSES) == set(PRESS_NAMES)
    for press in PRESSES.values():
        assert press.summary and not press.summary.endswith(".")
    asking = {name for name, press in PRESSES.items() if press.num_queries}
    assert asking == {"snapkv", "tova", "observed", "expected_attention", "pyramid"}


# What holds for every press.


@everyone
@pytest.mark.parametrize("length", [1, 2, 4, 5, 64, 65, 200])
def test_scores_are_one_finite_number_per_head_and_entry(press: Press, length: int) -> None:
    scores = scores_of(press, view_of(length))
    assert scores.shape == (KV_HEADS, length)
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


@everyone
def test_a_press_changes_nothing_and_answers_alike(press: Press) -> None:
    view = view_of(100)
    before = [tensor.clone() for tensor in (view.keys, view.values, view.queries)]
    first = scores_of(press, view).clone()
    scores_of(press, view_of(100, seed=5))
    assert torch.equal(scores_of(press, view), first)
    after = (view.keys, view.values, view.queries)
    assert all(map(torch.equal, before, after))


@everyone
def test_scores_are_computed_in_float32(press: Press) -> None:
    """A bfloat16 cache gives the scores of the same numbers in float32."""
    view = asked_for(press, view_of(100))
    low = {
        name: tensor.bfloat16()
        for name in ("keys", "values", "queries")
        if (tensor := getattr(view, name)) is not None
    }
    high = {name: tensor.float() for name, tensor in low.items()}
    scores = press.score(dataclasses.replace(view, **low))
    assert torch.equal(scores, press.score(dataclasses.replace(view, **high)))


@everyone
def test_what_lies_behind_the_committed_entries_is_not_read(press: Press) -> None:
    """A cache has spare room and provisional entries behind the cursor."""
    view = asked_for(press, view_of(100))

    def in_a_larger_buffer(tensor: Tensor) -> Tensor:
        room = torch.full((tensor.shape[0], 150, DIM), float("nan"))
        room[:, : tensor.shape[1]] = tensor
        return room[:, : tensor.shape[1]]

    keys, values = in_a_larger_buffer(view.keys), in_a_larger_buffer(view.values)
    there = dataclasses.replace(view, keys=keys, values=values)
    torch.testing.assert_close(press.score(there), press.score(view))


@pytest.mark.parametrize("name", sorted(set(PRESSES) - {"random"}))  # its hash holds the head
def test_heads_may_change_places(name: str) -> None:
    press, view = PRESSES[name], view_of(100)
    assert view.queries is not None
    group = HEADS // KV_HEADS
    swapped = dataclasses.replace(
        view,
        keys=view.keys.flip(0),
        values=view.values.flip(0),
        queries=view.queries.unflatten(0, (KV_HEADS, group)).flip(0, 1).flatten(0, 1),
    )
    torch.testing.assert_close(scores_of(press, swapped), scores_of(press, view).flip(0))


@everyone
@pytest.mark.parametrize("n_keep", [30, 50, 99, 100, 120])
def test_kept_indices_ascend_and_hold_sinks_and_the_recent_window(
    press: Press, n_keep: int
) -> None:
    kept = keep_best(scores_of(press, view_of(100)), n_keep, num_sinks=4, num_recent=17)
    count = min(n_keep, 100)
    assert kept.shape == (KV_HEADS, count)
    assert (kept.diff(dim=-1) > 0).all()
    assert kept.min() >= 0 and kept.max() < 100
    for head in kept:
        assert {*range(4), *range(83, 100)} <= set(head.tolist())


# The entries that go, named one by one.


def test_equal_scores_keep_the_earlier_entry() -> None:
    kept = keep_best(torch.tensor([[1.0, 3.0, 1.0, 3.0, 1.0, 1.0]]), 4)
    assert kept.tolist() == [[0, 1, 2, 3]]
    many = keep_best(torch.zeros(KV_HEADS, 5000), 100)
    assert torch.equal(many, torch.arange(100).expand(KV_HEADS, 100))


def test_streaming_keeps_both_ends() -> None:
    kept = keep_best(scores_of(PRESSES["streaming"], view_of(20)), 8, num_sinks=3, num_recent=2)
    assert kept.tolist() == [[0, 1, 2, 15, 16, 17, 18, 19]] * KV_HEADS


def test_knorm_keeps_small_keys_whatever_their_unit() -> None:
    view = view_of(100)
    view.keys[:, 30] *= 0.01
    kept = keep_best(scores_of(PRESSES["knorm"], view), 50)
    assert (kept == 30).any(-1).all()
    scaled = dataclasses.replace(view, keys=view.keys * 7)
    assert torch.equal(keep_best(scores_of(PRESSES["knorm"], scaled), 50), kept)


def test_keydiff_drops_what_points_with_the_others_whatever_its_length() -> None:
    view = view_of(100)
    view.keys.add_(2.0)  # all of them point roughly one way
    view.keys[:, 30] = -5.0  # one of them the other way
    scores = scores_of(PRESSES["keydiff"], view)
    assert (scores.argmax(-1) == 30).all()
    lengths = torch.rand(KV_HEADS, 100, 1) + 0.5
    scaled = dataclasses.replace(view, keys=view.keys * lengths)
    torch.testing.assert_close(scores_of(PRESSES["keydiff"], scaled), scores)


@pytest.mark.parametrize("direction", [-1.0, 1.0, DIRECTION])
def test_hybrid_keeps_a_recent_fifth_and_then_goes_by_norm(direction: float) -> None:
    view = view_of(100)
    view.keys[:, 30] *= 0.01
    view.keys[:, 31] *= 100
    scores = scores_of(Hybrid(direction=direction), view)
    kept = keep_best(scores, 30, num_sinks=4)
    assert set(range(80, 100)) <= set(kept[0].tolist())
    assert bool((scores[:, 30] > scores[:, 31]).all()) == (direction < 0)
    assert (31 in kept[0].tolist()) == (direction > 0)
    assert torch.equal(kept[0], kept[1])


def test_random_numbers_belong_to_layer_head_and_token() -> None:
    view = view_of(1000)
    press = Random()
    scores = press.score(view)
    some = view.positions[:, 100::7]
    fewer = dataclasses.replace(view, keys=view.keys[:, 100::7], positions=some)
    assert torch.equal(press.score(fewer), scores[:, 100::7])
    upper = dataclasses.replace(view, layer=1)
    rows = torch.cat((scores, press.score(upper), Random(seed=1).score(view)))
    alike = torch.corrcoef(rows) - torch.eye(len(rows))
    assert alike.abs().max() < 0.15  # of 1,000 numbers: more than four standard errors
    # Uniform: the standard error of the mean of 2,000 is 0.0065, of each tenth's share 0.0067.
    assert abs(float(scores.mean()) - 0.5) < 0.03
    assert ((scores.histc(10, 0, 1) / scores.numel() - 0.1).abs() < 0.03).all()
    assert scores.min() >= 0 and scores.max() < 1


# Budgets by layer.


def test_all_but_pyramid_keep_alike_in_every_layer() -> None:
    for name, press in PRESSES.items():
        alike = press.layer_budgets(80, [100] * 4, 21) == (80,) * 4
        assert alike == (name != "pyramid")


def test_pyramid_falls_by_equal_steps() -> None:
    budgets = Pyramid(num_queries=64, beta=20).layer_budgets(264, [1000] * 5, 21)
    assert budgets == (454, 359, 264, 169, 74)  # 74 is the window and a twentieth of the 200 left


@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=12),
    share=st.floats(0, 1),
    least=st.integers(0, 100),
)
def test_pyramid_budgets_sum_to_the_total_within_bounds(
    lengths: list[int], share: float, least: int
) -> None:
    n_keep = max(int(sum(lengths) / len(lengths) * share), 1)
    least = min(least, n_keep, *lengths)
    budgets = Pyramid(num_queries=32).layer_budgets(n_keep, lengths, least)
    assert sum(budgets) == n_keep * len(lengths)
    bounds = zip(budgets, lengths, strict=True)
    assert all(least <= budget <= length for budget, length in bounds)


@pytest.mark.parametrize("name", ["knorm", "hybrid"])
def test_occurrences_of_one_token_tie_whatever_the_rounding(name: str) -> None:
    # In the first layer a repeated token has keys of one norm. Blocks and single steps round it
    # differently, and must keep the same.
    generator = torch.Generator().manual_seed(3)
    keys = torch.randn(KV_HEADS, 8, DIM, generator=generator).repeat(1, 6, 1)
    kept = []
    for seed in range(20):
        noise = torch.randn(keys.shape, generator=torch.Generator().manual_seed(seed))
        scores = PRESSES[name].score(
            dataclasses.replace(view_of(48), keys=keys * (1 + 1e-7 * noise))
        )
        kept.append(keep_best(scores, 20))
    assert all(torch.equal(one, kept[0]) for one in kept)
