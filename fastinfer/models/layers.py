"""A checkpoint's tensors as functions of rows: each layer of our decoder, ready to run.

On a CPU a model whose matrices are all small is computed in float32, from weights rounded to its
dtype: that is faster there than bfloat16, and its rounding errors are smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.models.architectures import Activation, Architecture
from fastinfer.models.linear import SMALL, RowFunction, gated, layer_norm, linear, rms_norm
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

    attention_norm: RowFunction
    qkv: RowFunction
    qk_norm: RowFunction | None
    mlp_norm: RowFunction
    mlp_in: RowFunction  # its activation included
    out: RowFunction
    mlp_out: RowFunction | None
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
        self.hidden_dtype = torch.float32 if self.small else dtype

    def embedding(self) -> Tensor:
        """[vocab, hidden], in any dtype: convert the rows taken from it to the hidden dtype."""
        table = self._checkpoint.embedding()
        mappable = self.device.type == "cpu" and self.hidden_dtype == self.dtype
        if mappable and table.nbytes >= LARGE_EMBEDDING:
            return table  # few rows are ever read: mapped, it costs no memory but those
        return self._place(table.to(self.dtype), self.hidden_dtype)

    def head(self) -> RowFunction:
        """Normed hidden rows to logits."""
        weight = self._checkpoint.head()
        if self.small and weight.numel() <= SMALL_HEAD:
            return linear(weight.float(), None)
        product = linear(weight.to(self.device), None)
        return (
            product
            if self.hidden_dtype == self.dtype
            else lambda rows: product(rows.to(self.dtype))
        )

    def single_row(self, rotary: RotaryTable) -> SingleRowStep | None:
        """The faster step of one token, where there is one."""
        if not (self.small and covers(self.arch)):
            return None
        return SingleRowStep(self.arch, self._checkpoint, rotary)

    def final_norm(self) -> RowFunction:
        """The last norm."""
        return self._norm(self._checkpoint.final_norm())

    def layer(self, index: int) -> Layer:
        """One layer."""
        arch, weights = self.arch, self._checkpoint.layer(index)
        out, mlp_out = self._outputs(weights)
        activation = None if arch.gated else arch.activation
        mlp_in = self._linear(weights.mlp_in, activation)
        qk_norm = None if weights.qk_norm is None else self._rms(weights.qk_norm)
        return Layer(
            attention_norm=self._norm(weights.attention_norm),
            qkv=self._linear(weights.qkv),
            qk_norm=qk_norm,
            mlp_norm=self._norm(weights.mlp_norm),
            mlp_in=gated(mlp_in, arch.activation) if arch.gated else mlp_in,
            out=out,
            mlp_out=mlp_out,
            window=arch.windows[index],
        )

    def _outputs(self, weights: LayerWeights) -> tuple[RowFunction, RowFunction | None]:
        if self.arch.parallel:
            return self._linear(side_by_side(weights.attention_out, weights.mlp_out)), None
        return self._linear(weights.attention_out), self._linear(weights.mlp_out)

    def _place(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return tensor.to(device=self.device, dtype=dtype, copy=True)

    def _linear(self, matrix: Matrix, activation: Activation | None = None) -> RowFunction:
        bias = None if matrix.bias is None else self._place(matrix.bias, self.hidden_dtype)
        return linear(matrix.weight.to(self.device, self.hidden_dtype), bias, activation)

    def _norm(self, matrix: Matrix) -> RowFunction:
        weight = self._place(matrix.weight, self.hidden_dtype)
        if self.arch.norm == "rms":
            return rms_norm(weight, self.arch.norm_eps)
        bias = None if matrix.bias is None else self._place(matrix.bias, self.hidden_dtype)
        return layer_norm(weight, bias, self.arch.norm_eps)

    def _rms(self, weight: Tensor) -> RowFunction:
        return rms_norm(self._place(weight, self.hidden_dtype), self.arch.norm_eps)
