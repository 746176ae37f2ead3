"""A matrix product the fastest way that this device has, and the norms and activations around it.

On a CPU the matrix is packed once, at loading: a float32 one whose entries fit into float16 for
FBGEMM, which reads half the bytes, others into the blocks that oneDNN's kernels read. One row takes
half the time with the first that it takes with the second, and that is about half of what it takes
with the plain layout. Small float32 matrices stay plain, since such a call costs more than they do.
Elsewhere it is torch's own `linear`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fastinfer.models.architectures import Activation
from fastinfer.models.half_matrix import half_product, half_scale, has_kernel
from fastinfer.models.huge_pages import use_huge_pages

# Rows in, rows out. It may return its input changed, never a view of a weight.
RowFunction = Callable[[Tensor], Tensor]
# (rows in, hidden rows) to the hidden rows, changed: what came out of the rows in is added.
AddedFunction = Callable[[Tensor, Tensor], Tensor]

# A float32 matrix of fewer entries is faster unpacked (measured: 128x512 6 us against 17).
SMALL = 2**17

# Rows that a matrix is packed for; any number may come. oneDNN lets a float32 matrix that is packed
# for one row lie as it is, and a product with two rows then takes nearly twice the time of one
# (AVX2). Packed for eight, one row takes as long as before, two hardly longer, and each row of a
# product is, to the bit, what it is alone.
_PACKED_FOR = {torch.float32: 8, torch.bfloat16: 1}

# Activations that oneDNN applies inside the product: name and algorithm.
_FUSED = {"gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "relu": ("relu", "")}


def activate(name: Activation, rows: Tensor) -> Tensor:
    """The activation by its name."""
    if name == "gelu":
        return F.gelu(rows)
    if name == "gelu_tanh":
        return F.gelu(rows, approximate="tanh")
    return F.silu(rows) if name == "silu" else F.relu(rows)


def after_norm(
    norm: Callable[[float], RowFunction],
    weight: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
    activation: Activation | None = None,
) -> RowFunction:
    """`activation(norm(1.0)(rows) @ weight.T + bias)`, all but the weight being of the dtype.

    norm(s) is the norm whose result comes times s. weight is [out, in] and is not kept: the product
    has a copy of its own.
    """
    half = _half(weight, dtype)
    normed, product = norm(half or 1.0), linear(weight, bias, dtype, activation, half)
    return lambda rows: product(normed(rows))


def added(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> AddedFunction:
    """`hidden += rows @ weight.T + bias`, all but the weight being of the dtype."""
    half = _half(weight, dtype)
    scale = half or 1.0
    product = linear(weight, None if bias is None else bias / scale, dtype, None, half)
    return lambda rows, hidden: hidden.add_(product(rows), alpha=scale)


def linear(
    weight: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
    activation: Activation | None = None,
    half: float | None = None,
) -> RowFunction:
    """`activation(rows @ weight.T + bias)`; with `half`, a scale, of the weight over that."""
    if half is not None:
        product = half_product(weight, bias, half)
    elif _packable(weight, dtype):
        return _packed(weight.to(dtype), bias, activation)
    else:
        product = _plain(weight.to(dtype, copy=True), bias)
    if activation is None:
        return product
    after = activation
    return lambda rows: activate(after, product(rows))


def _half(weight: Tensor, dtype: torch.dtype) -> float | None:
    """The scale of a matrix that is kept in float16, or None for all others."""
    large = dtype == torch.float32 and weight.numel() >= SMALL
    if not large or weight.device.type != "cpu" or not has_kernel():
        return None
    return half_scale(weight)


def _plain(weight: Tensor, bias: Tensor | None) -> RowFunction:
    return lambda rows: F.linear(rows, weight, bias)


def _packable(weight: Tensor, dtype: torch.dtype) -> bool:
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32 and weight.numel() >= SMALL


def _packed(weight: Tensor, bias: Tensor | None, activation: Activation | None) -> RowFunction:
    """The operations that torch's own compiler emits for a frozen linear layer on a CPU."""
    rows = _PACKED_FOR[weight.dtype]
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), rows)
    use_huge_pages(torch.ops.mkldnn.data_ptr(packed), torch.ops.mkldnn._nbytes(packed))
    product = torch.ops.mkldnn._linear_pointwise.default
    if activation is not None and activation not in _FUSED:
        after = activation
        return lambda rows: activate(after, product(rows, packed, bias, "none", [], ""))
    name, algorithm = ("none", "") if activation is None else _FUSED[activation]
    return lambda rows: product(rows, packed, bias, name, [], algorithm)


def gated(gate_up: RowFunction, activation: Activation) -> RowFunction:
    """`activation(gate) * up` from one product that holds both."""

    def apply(rows: Tensor) -> Tensor:
        gate, up = gate_up(rows).chunk(2, -1)
        return activate(activation, gate).mul_(up)

    return apply


def layer_norm(weight: Tensor, bias: Tensor | None, eps: float) -> RowFunction:
    """Layer normalisation."""
    shape = tuple(weight.shape)
    return lambda rows: torch.layer_norm(rows, shape, weight, bias, eps)


def rms_norm(weight: Tensor, eps: float) -> RowFunction:
    """Root-mean-square normalisation (arXiv:1910.07467) over the last dimension, in float32."""
    size = weight.shape[-1]
    zero = torch.zeros_like(weight)
    on_cpu = weight.device.type == "cpu"

    def apply(rows: Tensor) -> Tensor:
        if on_cpu and rows.shape[0] == 1 and rows.dim() == 2:  # two operations, not eight
            length: float = torch.linalg.vector_norm(rows, dtype=torch.float32).item()
            scale = 1.0 / math.sqrt(length * length / size + eps)
            return torch.addcmul(zero, rows, weight, value=scale)
        return F.rms_norm(rows, (size,), None, eps) * weight

    return apply
