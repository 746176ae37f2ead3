"""A matrix product the fastest way that this device has, and the activations between two of them.

On a CPU with oneDNN the matrix is packed once, at loading, into the blocks that its kernels read: a
product with one row is about twice as fast as with the plain layout. Small float32 matrices stay
plain, since a call into oneDNN costs more than they do. Elsewhere it is torch's own `linear`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fastinfer.models.architectures import Activation
from fastinfer.models.huge_pages import use_huge_pages

# Rows in, rows out. It may return its input changed, never a view of a weight.
RowFunction = Callable[[Tensor], Tensor]

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


def linear(
    weight: Tensor, bias: Tensor | None, activation: Activation | None = None
) -> RowFunction:
    """`activation(rows @ weight.T + bias)` for rows of the weight's dtype.

    weight is [out, in] and is not kept: the product has a copy of its own.
    """
    if _packable(weight):
        return _packed(weight, bias, activation)
    weight = weight.clone()

    def plain(rows: Tensor) -> Tensor:
        product = F.linear(rows, weight, bias)
        return product if activation is None else activate(activation, product)

    return plain


def _packable(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32 and weight.numel() >= SMALL


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
