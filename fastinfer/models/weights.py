"""Tensors of a checkpoint, by name, and one layer of them in our decoder's form.

safetensors files are mapped, not read, and opened for one tensor at a time: in memory are the pages
of one layer beside what was made of those before. Projections that read the same rows are fused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from fastinfer.models.architectures import Architecture, UnsupportedArchitecture


class TensorSource(Protocol):
    """Named tensors."""

    def names(self) -> frozenset[str]:
        """Every name."""
        ...

    def get(self, name: str) -> Tensor:
        """One tensor, in the checkpoint's dtype, maybe mapped from a file: copy what is kept."""
        ...


class MappingTensors:
    """A state dict in memory."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors

    def names(self) -> frozenset[str]:
        """Every name."""
        return frozenset(self._tensors)

    def get(self, name: str) -> Tensor:
        """One tensor."""
        return self._tensors[name].detach()


class FolderTensors:
    """The safetensors files of a folder, one or many with an index."""

    def __init__(self, folder: Path) -> None:
        """Raises `UnsupportedArchitecture` where the folder holds no safetensors files."""
        self._files = _files_by_tensor(folder)

    def names(self) -> frozenset[str]:
        """Every name."""
        return frozenset(self._files)

    def get(self, name: str) -> Tensor:
        """One tensor, mapped from its file."""
        # Opened each time, so that the mapping goes with the tensor: memory holds no page twice.
        with safe_open(self._files[name], framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
        return tensor


def _files_by_tensor(folder: Path) -> dict[str, Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {name: folder / file for name, file in table.items()}
    single = folder / "model.safetensors"
    if not single.is_file():
        raise UnsupportedArchitecture("weights", f"{folder} holds no model.safetensors")
    try:
        with safe_open(single, framework="pt") as file:
            return dict.fromkeys(file.keys(), single)
    except SafetensorError as error:
        raise UnsupportedArchitecture("weights", f"{single} can't be read: {error}") from error


@dataclass(frozen=True, slots=True)
class Matrix:
    """A projection, [out, in], with its bias."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights:
    """One layer, fused. `out` of a parallel layer reads [attention, MLP] side by side."""

    attention_norm: Matrix
    mlp_norm: Matrix
    qkv: Matrix  # rows: queries of all heads, then keys, then values
    qk_norm: Tensor | None  # [heads + kv_heads, 1, head_dim]
    attention_out: Matrix
    mlp_in: Matrix  # gated: gate rows, then up rows
    mlp_out: Matrix


class Checkpoint:
    """The tensors of one architecture under its family's names, in the wanted dtype.

    They may be mapped from a file, which may be replaced while we run: copy what is kept.
    """

    def __init__(self, source: TensorSource, arch: Architecture, dtype: torch.dtype) -> None:
        self._source = source
        self._names = source.names()
        self._arch = arch
        self._dtype = dtype
        self._root = "gpt_neox" if arch.family == "gpt_neox" else "model"

    def embedding(self) -> Tensor:
        """[vocab, hidden], in the checkpoint's own dtype."""
        neox = self._arch.family == "gpt_neox"
        return self._raw(f"{self._root}.{'embed_in' if neox else 'embed_tokens'}.weight")

    def head(self) -> Tensor:
        """The output matrix, [vocab, hidden]."""
        if self._arch.tied:
            return self.embedding().to(self._dtype)
        old = "embed_out.weight"  # GPT-NeoX before transformers 5
        return self._tensor(old if old in self._names else "lm_head.weight")

    def final_norm(self) -> Matrix:
        """The norm before the output matrix."""
        neox = self._arch.family == "gpt_neox"
        return self._matrix(f"{self._root}.{'final_layer_norm' if neox else 'norm'}")

    def layer(self, index: int) -> LayerWeights:
        """One layer's weights."""
        prefix = f"{self._root}.layers.{index}"
        return self._neox(prefix) if self._arch.family == "gpt_neox" else self._llama(prefix)

    def _tensor(self, name: str) -> Tensor:
        return self._raw(name).to(self._dtype)

    def _raw(self, name: str) -> Tensor:
        if name not in self._names:
            raise UnsupportedArchitecture("weights", f"the checkpoint has no tensor {name}")
        return self._source.get(name)

    def _matrix(self, *names: str) -> Matrix:
        """The projections of those names, one under the other."""
        weights = [self._tensor(f"{name}.weight") for name in names]
        biases = [self._tensor(f"{name}.bias") for name in names if f"{name}.bias" in self._names]
        if len(biases) not in (0, len(names)):
            raise UnsupportedArchitecture("weights", f"only some of {', '.join(names)} have a bias")
        if len(names) == 1:
            return Matrix(weights[0], biases[0] if biases else None)
        return Matrix(torch.cat(weights), torch.cat(biases) if biases else None)

    def _llama(self, prefix: str) -> LayerWeights:
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        qk_norm = None
        if self._arch.qk_norm:
            query = self._tensor(f"{attention}.q_norm.weight").expand(self._arch.num_heads, -1)
            key = self._tensor(f"{attention}.k_norm.weight").expand(self._arch.num_kv_heads, -1)
            qk_norm = torch.cat((query, key)).unsqueeze(1)
        return LayerWeights(
            attention_norm=self._matrix(f"{prefix}.input_layernorm"),
            mlp_norm=self._matrix(f"{prefix}.post_attention_layernorm"),
            qkv=self._matrix(*(f"{attention}.{part}_proj" for part in "qkv")),
            qk_norm=qk_norm,
            attention_out=self._matrix(f"{attention}.o_proj"),
            mlp_in=self._matrix(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
            mlp_out=self._matrix(f"{mlp}.down_proj"),
        )

    def _neox(self, prefix: str) -> LayerWeights:
        return LayerWeights(
            attention_norm=self._matrix(f"{prefix}.input_layernorm"),
            mlp_norm=self._matrix(f"{prefix}.post_attention_layernorm"),
            qkv=self._by_kind(self._matrix(f"{prefix}.attention.query_key_value")),
            qk_norm=None,
            attention_out=self._matrix(f"{prefix}.attention.dense"),
            mlp_in=self._matrix(f"{prefix}.mlp.dense_h_to_4h"),
            mlp_out=self._matrix(f"{prefix}.mlp.dense_4h_to_h"),
        )

    def _by_kind(self, qkv: Matrix) -> Matrix:
        """GPT-NeoX keeps q, k and v of each head together; we want all q, all k, all v."""

        def sort(rows: Tensor) -> Tensor:
            heads, dim = self._arch.num_heads, self._arch.head_dim
            return rows.view(heads, 3, dim, -1).transpose(0, 1).reshape(rows.shape)

        return Matrix(sort(qkv.weight), None if qkv.bias is None else sort(qkv.bias))


def side_by_side(left: Matrix, right: Matrix) -> Matrix:
    """One product for the sum of two: `left @ a + right @ b` reads [a, b]."""
    biases = [m.bias for m in (left, right) if m.bias is not None]
    total = biases[0] if len(biases) == 1 else None
    if len(biases) == 2:
        total = (biases[0].float() + biases[1].float()).to(biases[0].dtype)
    return Matrix(torch.cat((left.weight, right.weight), dim=1), total)
