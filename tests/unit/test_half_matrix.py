"""Float32 products with matrices that are kept in float16: exact weights, or none at all."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fastinfer.models.half_matrix import PART, half_product, half_scale, has_kernel

needs_kernel = pytest.mark.skipif(not has_kernel(), reason="this torch has no FBGEMM")


def matrix(out: int, inward: int, dtype: torch.dtype, size: float = 0.02) -> Tensor:
    generator = torch.Generator().manual_seed(out)
    return (torch.randn(out, inward, generator=generator) * size).to(dtype).float()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1e-4, 0.02, 1.0, 3000.0])
def test_what_checkpoints_hold_fits(dtype: torch.dtype, size: float) -> None:
    weight = matrix(PART + 3, 40, dtype, size)
    scale = half_scale(weight)
    assert scale is not None
    assert math.frexp(scale)[0] == 0.5  # a power of two
    assert torch.equal((weight / scale).half().double() * scale, weight.double())


@pytest.mark.parametrize("place", [0, PART + 2])
@pytest.mark.parametrize(
    "entry",
    [
        1 / 3,  # more digits than float16 has
        (1 + 2.0**-10) * 2.0**-38,  # eleven digits, so far below the largest, are too many
        math.nan,
        math.inf,
    ],
)
def test_one_entry_that_does_not_fit_is_enough(place: int, entry: float) -> None:
    weight = matrix(PART + 3, 40, torch.bfloat16)
    assert half_scale(weight) is not None
    weight[place, 7] = entry
    assert half_scale(weight) is None


def test_a_range_too_wide_does_not_fit() -> None:
    weight = torch.ones(4, 4)
    for exponent, fits in ((-37, True), (-38, True), (-39, False)):
        weight[0, 0] = 2.0**exponent
        assert (half_scale(weight) is not None) == fits, exponent


def test_nothing_but_zeros_does_not_fit() -> None:
    assert half_scale(torch.zeros(4, 4)) is None


@needs_kernel
@pytest.mark.parametrize(
    "shape", [(8, 8), (1536, 384), (4096, 128), (384, 1920), (1000, 77), (3, 1)]
)
@torch.inference_mode()
def test_equals_the_product_in_float32(shape: tuple[int, int]) -> None:
    """Any number of rows: the kernel takes up to 120 at once, in parts."""
    out, inward = shape
    weight, bias = matrix(out, inward, torch.bfloat16), torch.randn(out)
    scale = half_scale(weight)
    assert scale is not None
    given = weight.clone()
    product = half_product(weight, bias, scale)
    assert torch.equal(weight, given)  # packing leaves it as it came
    weight = weight.float()
    for count in (1, 2, 3, 5, 9, 17, 64, 121, 250):
        rows = torch.randn(count, inward)
        exact = rows.double() @ weight.double().t() / scale + bias.double()
        unit = float((rows.abs() @ weight.abs().t()).max()) / scale * torch.finfo(torch.float32).eps
        error = float((product(rows) - exact).abs().max())
        assert error < 4 * unit + 1e-6, f"{count} rows"
