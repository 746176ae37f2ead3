"""A checkpoint's tensors as functions of rows: each layer of our decoder, ready to run.

On a CPU a model whose matrices are all small is computed in float32, from weights rounded to its
dtype: that is faster there than bfloat16, and its rounding errors are smaller. So is any model on a
processor that has no bfloat16 but the product with float16 matrices.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.models.architectures import Activation, Architecture
from fastinfer.models.devices import cpu_has_bfloat16
from fastinfer.models.half_matrix import has_kernel
from fastinfer.models.linear import (
    SMALL,
    AddedFunction,
    RowFunction,
    added,
    after_norm,
    gated,
    layer_norm,
    linear,
    rms_norm,
)
from fastinfer.models.rotary import RotaryTable
from fastinfer.models.single_row import SingleRowStep, covers
from fastinfer.models.weights import Checkpoint, LayerWeights, Matrix, side_by_side

# An embedding of fewer bytes is copied into memory.
LARGE_EMBEDDING = 2**24

# A small model's output matrix of at most so many entries is float32 too: to read twice the bytes
# takes no longer than to convert the rows, and its logits are not rounded.
SMALL_HEAD = 2**20


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, ready to run. `mlp_out` is None in a parallel layer: `out` does both."""

    qkv: RowFunction  # of hidden rows: the norm before it is included
    qk_norm: RowFunction | None
    mlp_in: RowFunction  # so here, and its activation
    out: AddedFunction
    mlp_out: AddedFunction | None
    window: int | None


class LayerBuilder:
    """Turns checkpoint tensors into functions of rows, one layer at a time."""

    def __init__(
        self, arch: Architecture, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.arch = arch
        self.dtype = dtype
        self.device = device
        self._checkpoint = checkpoint
        outputs = max(
            arch.intermediate_size * (2 if arch.gated else 1),
            (arch.num_heads + 2 * arch.num_kv_heads) * arch.head_dim,
        )
        self.small = device.type == "cpu" and outputs * arch.hidden_size < SMALL
        self._widened = device.type == "cpu" and has_kernel() and not cpu_has_bfloat16()
        self.hidden_dtype = torch.float32 if self.small or self._widened else dtype

    def embedding(self) -> Tensor:
        """[vocab, hidden], in any dtype: convert the rows taken from it to the hidden dtype."""
        table = self._checkpoint.embedding()
        mappable = self.device.type == "cpu" and self.dtype in (self.hidden_dtype, table.dtype)
        if mappable and table.nbytes >= LARGE_EMBEDDING:
            return table  # few rows are ever read: mapped, it costs no memory but those
        return self._place(table.to(self.dtype), self.hidden_dtype)

    def head(self) -> RowFunction:
        """Hidden rows to logits, the last norm included."""
        weight = self._checkpoint.head().to(self.device)
        norm = functools.partial(self._norm, self._checkpoint.final_norm())
        wide = self._widened or (self.small and weight.numel() <= SMALL_HEAD)
        if wide or self.hidden_dtype == self.dtype:
            return after_norm(norm, weight, None, self.hidden_dtype)
        product, normed = linear(weight, None, self.dtype), norm(1.0)
        return lambda rows: product(normed(rows).to(self.dtype))

    def single_row(self, rotary: RotaryTable) -> SingleRowStep | None:
        """The faster step of one token, where there is one."""
        if not (self.small and covers(self.arch)):
            return None
        return SingleRowStep(self.arch, self._checkpoint, rotary)

    def layer(self, index: int) -> Layer:
        """One layer."""
        arch, weights = self.arch, self._checkpoint.layer(index)
        out, mlp_out = self._outputs(weights)
        activation = None if arch.gated else arch.activation
        mlp_in = self._after(weights.mlp_norm, weights.mlp_in, activation)
        return Layer(
            qkv=self._after(weights.attention_norm, weights.qkv),
            qk_norm=None if weights.qk_norm is None else self._rms(weights.qk_norm),
            mlp_in=gated(mlp_in, arch.activation) if arch.gated else mlp_in,
            out=out,
            mlp_out=mlp_out,
            window=arch.windows[index],
        )

    def _outputs(self, weights: LayerWeights) -> tuple[AddedFunction, AddedFunction | None]:
        if self.arch.parallel:
            return self._added(side_by_side(weights.attention_out, weights.mlp_out)), None
        return self._added(weights.attention_out), self._added(weights.mlp_out)

    def _place(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return tensor.to(device=self.device, dtype=dtype, copy=True)

    def _after(
        self, norm: Matrix, matrix: Matrix, activation: Activation | None = None
    ) -> RowFunction:
        normed = functools.partial(self._norm, norm)
        return after_norm(normed, *self._parts(matrix), self.hidden_dtype, activation)

    def _added(self, matrix: Matrix) -> AddedFunction:
        return added(*self._parts(matrix), self.hidden_dtype)

    def _parts(self, matrix: Matrix) -> tuple[Tensor, Tensor | None]:
        bias = None if matrix.bias is None else self._place(matrix.bias, self.hidden_dtype)
        return matrix.weight.to(self.device), bias

    def _norm(self, matrix: Matrix, scale: float) -> RowFunction:
        """The norm, its result times the scale."""
        weight = self._place(matrix.weight, self.hidden_dtype) * scale
        if self.arch.norm == "rms":
            return rms_norm(weight, self.arch.norm_eps)
        bias = None if matrix.bias is None else self._place(matrix.bias, self.hidden_dtype) * scale
        return layer_norm(weight, bias, self.arch.norm_eps)

    def _rms(self, weight: Tensor) -> RowFunction:
        return rms_norm(self._place(weight, self.hidden_dtype), self.arch.norm_eps)
