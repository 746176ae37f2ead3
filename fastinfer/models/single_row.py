"""One token through a small GPT-NeoX model on a CPU, in as few operations as it takes.

A draft of a million parameters spends most of a step on calling operations, not in them. So here
the norms' scales are folded into the matrices (in float32, where that rounds nothing that counts),
both projections that read the hidden state are one product, which gives what rotation needs a
second time and in its order, the bias of the output is one more column of its matrix, and all
intermediate results lie in buffers whose views are made once. Measured on the bundled draft, head
included: 0.26 ms against 0.44 for the general forward.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fastinfer.models.architectures import Architecture
from fastinfer.models.kv_cache import StaticKVCache
from fastinfer.models.rotary import RotaryTable
from fastinfer.models.weights import Checkpoint, LayerWeights, Matrix, side_by_side


def covers(arch: Architecture) -> bool:
    """Whether the step can stand in for this architecture's general forward."""
    return (
        arch.parallel
        and arch.norm == "layer"
        and arch.activation == "gelu"
        and not arch.gated
        and arch.num_heads == arch.num_kv_heads
        and set(arch.windows) == {None}
    )


class SingleRowStep:
    """The weights of all layers, folded. Shared by all requests, changed by none."""

    def __init__(self, arch: Architecture, checkpoint: Checkpoint, rotary: RotaryTable) -> None:
        self.arch = arch
        self._rotary = rotary
        self._layers = [_folded(arch, checkpoint.layer(index)) for index in range(arch.num_layers)]

    def new_cache(self) -> RowCache:
        """An empty cache for one request, with its buffers."""
        return RowCache(self.arch)

    def run(
        self,
        row: Tensor,  # [1, hidden]
        cache: RowCache,
    ) -> Tensor:  # [1, hidden], before the final norm
        """The layers over one token, whose entries are appended. The cursor is moved on."""
        arch, place = self.arch, cache.length
        cos, sin = self._rotary.reserve(place + 1).select(1, place).unbind(0)
        shape = (arch.hidden_size,)
        room = cache.room()
        for (joint, joint_bias, out), (new, keys, values) in zip(self._layers, room, strict=True):
            # 1. Everything that reads the hidden state: queries, keys, values, MLP.
            normed = torch.layer_norm(row, shape, None, None, arch.norm_eps)
            torch.addmm(joint_bias, normed, joint, out=cache.projected)
            # 2. Rotate queries and keys; keys and values go to the cache.
            cache.rotated.mul_(cos).addcmul_(cache.swapped, sin)
            new.copy_(cache.entries)
            # 3. Attention and the activation, side by side, and one product back.
            scores = torch.bmm(cache.query, keys)
            torch.bmm(torch.softmax(scores, -1), values, out=cache.attended)
            torch.erf(cache.mlp, out=cache.activated)
            torch.addcmul(cache.mlp, cache.mlp, cache.activated, out=cache.activated)
            row = torch.addmm(row, cache.joined, out)
        cache.advance(1)
        return row


class RowCache(StaticKVCache):
    """A cache with the buffers of the step: they are one request's own."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(
            num_layers=arch.num_layers,
            num_kv_heads=arch.num_kv_heads,
            head_dim=arch.head_dim,
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        heads, dim, turned = arch.num_heads, arch.head_dim, arch.rotary.dim
        width, twice = heads * dim, 2 * heads * turned
        with torch.inference_mode(False):
            self.projected = torch.empty(1, 3 * width + twice + arch.intermediate_size)
            self.joined = torch.ones(1, width + arch.intermediate_size + 1)  # the last stays 1
        per_head = self.projected[:, : 3 * width].view(3 * heads, dim)
        self.rotated = per_head[: 2 * heads, :turned]
        self.query = per_head[:heads].view(heads, 1, dim)
        self.entries = per_head[heads:].view(2, heads, dim)
        self.swapped = self.projected[:, 3 * width :][:, :twice].view(2 * heads, turned)
        self.mlp = self.projected[:, 3 * width + twice :]
        self.attended = self.joined[:, :width].view(heads, 1, dim)
        self.activated = self.joined[:, width:-1]
        self._viewed: Tensor | None = None  # the storage that `_layers` are views of
        self._layers: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()

    def room(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Per layer: where one token's entries go, [2, heads, dim]; what attention reads then.

        That is keys [heads, dim, entries] and values [heads, entries, dim].
        """
        place = self.length
        self.reserve(place + 1)
        if self._viewed is not self.storage:
            self._viewed = self.storage
            self._layers = tuple(
                (layer, layer[0].transpose(1, 2), layer[1]) for layer in self.storage
            )
        return [
            (layer.select(2, place), keys.narrow(2, 0, place + 1), values.narrow(1, 0, place + 1))
            for layer, keys, values in self._layers
        ]


def _folded(arch: Architecture, weights: LayerWeights) -> tuple[Tensor, Tensor, Tensor]:
    """Of one layer: `joint` [hidden, qkv + swapped + MLP], its bias, `out` [all read + 1, hidden].

    Queries come scaled for attention. Swapped are the rotated values of queries and keys with their
    halves exchanged. The MLP comes over sqrt(2), and `out` takes it so: with u = x / sqrt(2),
    gelu(x) = (u + u erf(u)) / sqrt(2).
    """
    heads, dim, turned = arch.num_heads, arch.head_dim, arch.rotary.dim
    qkv = _after_norm(weights.attention_norm, weights.qkv)
    qkv[: heads * dim] /= math.sqrt(dim)
    query_key = qkv.view(3, heads, dim, -1)[:2, :, :turned]
    swapped = query_key.roll(turned // 2, 2).flatten(0, 2)
    mlp = _after_norm(weights.mlp_norm, weights.mlp_in) / math.sqrt(2)
    joint = torch.cat((qkv, swapped, mlp))
    both = side_by_side(weights.attention_out, weights.mlp_out)
    matrix = both.weight.float()
    matrix[:, heads * dim :] /= math.sqrt(2)
    column = torch.zeros(len(matrix)) if both.bias is None else both.bias.float()
    out = torch.cat((matrix, column[:, None]), 1)
    return joint[:, :-1].t().contiguous(), joint[:, -1].clone(), out.t().contiguous()


def _after_norm(norm: Matrix, matrix: Matrix) -> Tensor:
    """`matrix @ norm(x)` as a product with the bare normalised x: W * scale, then W @ shift + b."""
    weight = matrix.weight.float()
    bias = torch.zeros(len(weight)) if matrix.bias is None else matrix.bias.float()
    if norm.bias is not None:
        bias = bias + weight @ norm.bias.float()
    return torch.cat((weight * norm.weight.float(), bias[:, None]), 1)
