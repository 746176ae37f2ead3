"""Total variation, its noise floor, and the chi-square test against other ways to compute them."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from fastinfer.evaluation.goodness import P_LOW, chi_square, fit, noise_floor


def sample(law: torch.Tensor, draws: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial(law, draws, replacement=True, generator=generator)
    return torch.bincount(drawn, minlength=len(law))


def skewed(vocab: int = 400) -> torch.Tensor:
    law = 1.0 / torch.arange(1, vocab + 1, dtype=torch.float64) ** 1.3
    return law / law.sum()


def test_the_floor_is_the_mean_distance_of_true_samples() -> None:
    law = skewed()
    mean, high = noise_floor(law, 500)
    distances = [
        0.5 * float((sample(law, 500, seed) / 500 - law).abs().sum()) for seed in range(300)
    ]
    assert mean == pytest.approx(sum(distances) / len(distances), rel=0.02)
    assert sum(distance > high for distance in distances) <= 3


def test_the_floor_of_a_greedy_law_is_zero() -> None:
    law = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)
    assert noise_floor(law, 100)[0] == 0.0


def test_chi_square_is_scipys_where_no_bin_is_rare() -> None:
    law = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    observed = torch.tensor([520, 280, 140, 60])
    statistic, bins, p_value = chi_square(observed.double(), law * 1000)
    theirs = stats.chisquare(observed.numpy(), (law * 1000).numpy())
    assert bins == 4
    assert statistic == pytest.approx(theirs.statistic)
    assert p_value == pytest.approx(theirs.pvalue)


def test_rare_tokens_share_one_bin() -> None:
    law = skewed()
    expected = law * 1000
    _, bins, _ = chi_square(sample(law, 1000, 1).double(), expected)
    assert bins == int((expected >= 5).sum()) + 1


def test_p_values_of_a_right_law_are_spread_evenly() -> None:
    law = skewed()
    p_values = [fit(sample(law, 1000, seed), law).p_value for seed in range(300)]
    assert stats.kstest(p_values, "uniform").pvalue > P_LOW


def test_a_law_that_is_a_little_off_is_refuted() -> None:
    law = skewed()
    other = law.clone()
    other[0] *= 1.5
    found = fit(sample(other / other.sum(), 4000, 1), law)
    assert not found.passed and found.total_variation > found.floor
    assert fit(sample(law, 4000, 1), law).passed


def test_a_token_that_the_law_never_gives_refutes_it() -> None:
    law = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    found = fit(torch.tensor([500, 499, 1]), law)
    assert found.p_value == 0.0 and not found.passed


def test_a_greedy_law_that_is_met_passes() -> None:
    law = torch.tensor([0.0, 1.0, 0.0])
    found = fit(torch.tensor([0, 50, 0]), law)
    assert found.passed and found.total_variation == 0.0
