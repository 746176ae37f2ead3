"""How well draws fit a law that is known: total variation with its noise floor, and chi-square."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# One false alarm in 10,000 checks of a rule that is right.
P_LOW = 1e-4
LEAST_EXPECTED = 5.0  # Cochran's rule for a bin of the chi-square test


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a sample says of a law.

    `total_variation` is half the sum of |share - probability|. A perfect sampler has it too, since
    a sample is finite: `floor` is its mean there, `floor_high` what at most one perfect sample in a
    hundred exceeds. `p_value` is the chance of a sample that fits as badly or worse where the law
    is right.
    """

    num_draws: int
    total_variation: float
    floor: float
    floor_high: float
    chi_square: float
    num_bins: int
    p_value: float

    @property
    def passed(self) -> bool:
        """Whether the law stands: a right one is refuted once in 10,000 times."""
        return self.p_value >= P_LOW


def fit(
    counts: Tensor,  # [vocab], how often each token was drawn
    law: Tensor,  # [vocab]
) -> Fit:
    """Compare a sample with a law."""
    observed = counts.double()
    probs = law.double() / law.double().sum()
    draws = int(observed.sum())
    assert draws > 0, "there is something to compare"
    low, high = noise_floor(probs, draws)
    statistic, bins, p_value = chi_square(observed, probs * draws)
    return Fit(
        num_draws=draws,
        total_variation=0.5 * float((observed / draws - probs).abs().sum()),
        floor=low,
        floor_high=high,
        chi_square=statistic,
        num_bins=bins,
        p_value=p_value,
    )


def noise_floor(
    probs: Tensor,  # [vocab] float64
    draws: int,
) -> tuple[float, float]:
    """Mean total variation of samples that do follow the law, and a bound on nearly all of them.

    The mean is exact: half the sum of the binomials' mean absolute deviations (De Moivre's closed
    form). One draw moves the distance by 1 / n at most, so by McDiarmid's inequality at most one
    sample in a hundred lies above the bound; the bound is generous.
    """
    p = probs[(probs > 0) & (probs < 1)]
    n = torch.tensor(float(draws), dtype=torch.float64)
    m = (n * p).floor()
    log_mean = (
        (n - m) * torch.log1p(-p) + (m + 1) * p.log() + (m + 1).log()
        + torch.lgamma(n + 1) - torch.lgamma(m + 2) - torch.lgamma(n - m)
    )  # fmt: skip
    mean = float(log_mean.exp().sum()) / draws  # half of twice the sum
    return mean, min(1.0, mean + math.sqrt(math.log(100.0) / (2 * draws)))


def chi_square(
    observed: Tensor,  # [vocab]
    expected: Tensor,  # [vocab], of the same sum
) -> tuple[float, int, float]:
    """Pearson's statistic, its number of bins, and its p-value.

    What is expected fewer than 5 times goes into one bin, so that the statistic follows its law.
    A token that the law never gives refutes it alone: then the p-value is 0.
    """
    if bool((observed[expected <= 0] > 0).any()):
        return float("inf"), 0, 0.0
    common = expected >= LEAST_EXPECTED
    o, e = observed[common], expected[common]
    rare = float(expected[~common].sum())
    if rare > 0:
        o = torch.cat([o, observed[~common].sum().reshape(1)])
        e = torch.cat([e, torch.tensor([rare], dtype=e.dtype)])
    statistic = float(((o - e) ** 2 / e).sum())
    freedom = len(e) - 1
    if freedom == 0:  # one bin holds all: a greedy law, or too few draws to tell anything
        return statistic, 1, 1.0
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return statistic, len(e), float(torch.special.gammaincc(half[0], half[1]))
