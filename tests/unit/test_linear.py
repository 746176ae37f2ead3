"""A matrix product, kept in float16, packed or plain, and what stands around it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fastinfer.models.architectures import Activation
from fastinfer.models.half_matrix import has_kernel
from fastinfer.models.linear import (
    SMALL,
    RowFunction,
    activate,
    added,
    after_norm,
    layer_norm,
    linear,
)

SHAPES = {"plain": (64, 48), "packed": (640, 384), "half": (640, 384)}  # [out, in]
AVX2 = torch.backends.cpu.get_cpu_capability() == "AVX2"
EPS = 1e-5


def matrix(kind: str) -> tuple[Tensor, Tensor]:
    out, inward = SHAPES[kind]
    assert (out * inward >= SMALL) == (kind != "plain")
    torch.manual_seed(0)
    weight, bias = torch.randn(out, inward), torch.randn(out)
    return weight.bfloat16().float() if kind == "half" else weight, bias


@pytest.mark.parametrize("kind", ["plain", "packed"])
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "silu", "relu"])
@pytest.mark.parametrize("rows", [1, 2, 5, 17, 130])
@torch.inference_mode()
def test_equals_torchs_own(kind: str, activation: Activation | None, rows: int) -> None:
    weight, bias = matrix(kind)
    given = torch.randn(rows, weight.shape[1])
    expected = F.linear(given, weight, bias)
    if activation is not None:
        expected = activate(activation, expected)
    assert torch.allclose(
        linear(weight, bias, torch.float32, activation)(given), expected, atol=1e-4
    )


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("rows", [1, 5])
@torch.inference_mode()
def test_a_norm_before_it(kind: str, activation: Activation | None, rows: int) -> None:
    weight, bias = matrix(kind)
    shape = weight.shape[1:]
    norm_weight, norm_bias = torch.randn(shape), torch.randn(shape)

    def norm(scale: float) -> RowFunction:
        return layer_norm(norm_weight * scale, norm_bias * scale, EPS)

    given = torch.randn(rows, *shape)
    before = given.clone()
    expected = F.linear(F.layer_norm(given, shape, norm_weight, norm_bias, EPS), weight, bias)
    if activation is not None:
        expected = activate(activation, expected)
    assert torch.allclose(
        after_norm(norm, weight, bias, torch.float32, activation)(given), expected, atol=1e-4
    )
    assert torch.equal(given, before)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("with_bias", [True, False])
@torch.inference_mode()
def test_added_to_hidden_rows(kind: str, with_bias: bool) -> None:
    weight, bias = matrix(kind)
    given, hidden = torch.randn(3, weight.shape[1]), torch.randn(3, weight.shape[0])
    expected = hidden + F.linear(given, weight, bias if with_bias else None)
    result = added(weight, bias if with_bias else None, torch.float32)(given, hidden)
    assert torch.allclose(result, expected, atol=1e-4)
    assert result is hidden


@pytest.mark.skipif(not has_kernel(), reason="this torch has no FBGEMM")
@pytest.mark.parametrize(("kind", "halved"), [("plain", False), ("packed", False), ("half", True)])
def test_only_what_fits_is_halved(kind: str, halved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large float32 matrix, and none whose entries that would change."""
    made = []
    monkeypatch.setattr("fastinfer.models.linear.half_product", lambda *given: made.append(given))
    added(*matrix(kind), torch.float32)
    assert bool(made) == halved


@pytest.mark.skipif(not AVX2, reason="seen with oneDNN's kernels for AVX2")
@torch.inference_mode()
def test_a_row_of_a_block_is_what_it_is_alone() -> None:
    """To the bit, so that a verified block scores as single tokens do. It also shows the packing: a
    matrix that lies as it came takes another way for a single row."""
    weight, bias = matrix("packed")
    product = linear(weight, bias, torch.float32)
    given = torch.randn(32, weight.shape[1])
    alone = torch.cat([product(row[None]) for row in given])
    for rows in range(2, 33):
        assert torch.equal(product(given[:rows]), alone[:rows]), f"{rows} rows"
