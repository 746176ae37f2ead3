"""A matrix product, packed or plain, against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from fastinfer.models.architectures import Activation
from fastinfer.models.linear import SMALL, activate, linear

SHAPES = {"plain": (64, 48), "packed": (640, 384)}  # [out, in]
AVX2 = torch.backends.cpu.get_cpu_capability() == "AVX2"


def matrix(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    out, inward = SHAPES[kind]
    assert (out * inward >= SMALL) == (kind == "packed")
    torch.manual_seed(0)
    return torch.randn(out, inward), torch.randn(out)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "silu", "relu"])
@pytest.mark.parametrize("rows", [1, 2, 5, 17, 130])
@torch.inference_mode()
def test_equals_torchs_own(kind: str, activation: Activation | None, rows: int) -> None:
    weight, bias = matrix(kind)
    given = torch.randn(rows, weight.shape[1])
    expected = F.linear(given, weight, bias)
    if activation is not None:
        expected = activate(activation, expected)
    assert torch.allclose(linear(weight, bias, activation)(given), expected, atol=1e-4)


@pytest.mark.skipif(not AVX2, reason="seen with oneDNN's kernels for AVX2")
@torch.inference_mode()
def test_a_row_of_a_block_is_what_it_is_alone() -> None:
    """To the bit, so that a verified block scores as single tokens do. It also shows the packing: a
    matrix that lies as it came takes another way for a single row."""
    weight, bias = matrix("packed")
    product = linear(weight, bias)
    given = torch.randn(32, weight.shape[1])
    alone = torch.cat([product(row[None]) for row in given])
    for rows in range(2, 33):
        assert torch.equal(product(given[:rows]), alone[:rows]), f"{rows} rows"
