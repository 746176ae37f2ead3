"""Our own decoder: one plain forward for GPT-NeoX and the Llama family over a static cache.

Everything is rows of one sequence: tensors carry no batch dimension. Logits equal transformers' in
float32. In bfloat16 a rounding is left out where that is free (the sum of attention and MLP in a
parallel layer): results are slightly nearer to float32's, not equal bit by bit.

On a CPU the cache is float32 whatever the weights are, and so is attention to it: a block then
rounds as single tokens do. Long blocks, as prompts are, attend in bfloat16 where the processor has
matrix units for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fastinfer.config import ConfigError
from fastinfer.models.architectures import (
    Architecture,
    UnsupportedArchitecture,
    read_architecture,
)
from fastinfer.models.base import KVCache
from fastinfer.models.devices import cpu_has_matrix_units
from fastinfer.models.kv_cache import StaticKVCache
from fastinfer.models.layers import Layer, LayerBuilder
from fastinfer.models.masks import Masks
from fastinfer.models.pressed_cache import PressedKVCache
from fastinfer.models.rotary import RotaryTable
from fastinfer.models.single_row import RowCache, SingleRowStep
from fastinfer.models.weights import Checkpoint, FolderTensors, MappingTensors, TensorSource
from fastinfer.presses.base import Press

# So many tokens at once are read one by one, where there is a step for one.
FEW_ROWS = 2
# From so many rows on, matrix units make up for converting keys and values. No verified block is as
# long, and every method reads the prompt alike.
LONG_BLOCK = 128


@dataclass(frozen=True, slots=True)
class Block:
    """What all layers share in one forward of n new tokens."""

    rotate_: Callable[[Tensor], None]
    # (query, keys, values, window) to [1, heads, n, head_dim]
    attend: Callable[[Tensor, Tensor, Tensor, int | None], Tensor]


@dataclass(frozen=True, slots=True)
class Slots:
    """Where one layer's keys and values go, and what attention reads once they are there."""

    write: Callable[[Tensor], object]  # of [1, 2 * kv_heads, n, head_dim]
    keys: Tensor  # [1, kv_heads, entries read, head_dim]
    values: Tensor
    # Takes the queries [1, heads, n, head_dim] after rotation, where a press will ask for them.
    record: Callable[[Tensor], object] | None = None


def load_decoder(
    folder: Path | str, dtype: torch.dtype, device: torch.device, name: str | None = None
) -> TransformerDecoder:
    """The decoder of a folder that transformers saved.

    Raises `UnsupportedArchitecture` where its architecture, an option or its files are not covered.
    """
    folder = Path(folder)
    arch = _architecture(folder)
    return _build(arch, FolderTensors(folder), dtype, device, name or folder.name)


def covers(folder: Path) -> bool:
    """Whether the folder's architecture is one that this decoder runs."""
    try:
        _architecture(folder)
    except UnsupportedArchitecture:
        return False
    return True


def _architecture(folder: Path) -> Architecture:
    file = folder / "config.json"
    if not file.is_file():
        raise UnsupportedArchitecture("config", f"{folder} holds no config.json")
    return read_architecture(json.loads(file.read_text(encoding="utf-8")))


def from_state_dict(
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    device: torch.device,
    name: str = "model",
) -> TransformerDecoder:
    """The decoder of a transformers model in memory, from `config.to_dict()` and `state_dict()`.

    Raises `UnsupportedArchitecture` as `load_decoder` does.
    """
    return _build(read_architecture(config), MappingTensors(tensors), dtype, device, name)


def _build(
    arch: Architecture, source: TensorSource, dtype: torch.dtype, device: torch.device, name: str
) -> TransformerDecoder:
    builder = LayerBuilder(arch, Checkpoint(source, arch, dtype), dtype, device)
    return TransformerDecoder(arch, builder, name)


class TransformerDecoder:
    """The weights of one model and the forward over them; implements `models.base.Decoder`."""

    backend = "fastinfer"
    # Memory for a block's hidden rows stays bounded; a shorter one reads the cache more often.
    prefill_block = 2048

    def __init__(self, arch: Architecture, builder: LayerBuilder, name: str) -> None:
        self.name = name
        self.arch = arch
        self.vocab_size = arch.vocab_size
        self.context = arch.context
        self.dtype = builder.dtype
        self.device = builder.device
        on_cpu = self.device.type == "cpu"
        self.cache_dtype = torch.float32 if on_cpu else builder.hidden_dtype
        half = on_cpu and builder.hidden_dtype == torch.bfloat16 and cpu_has_matrix_units()
        self._long_dtype = torch.bfloat16 if half else self.cache_dtype
        self.windows = frozenset(arch.windows)
        self.rotary = RotaryTable(arch.rotary, self.device, self.cache_dtype)
        self._masks = Masks(self.cache_dtype, self.device)
        self._hidden_dtype = builder.hidden_dtype
        self._embedding = builder.embedding()
        self._head = builder.head()
        self._single_row = builder.single_row(self.rotary)
        self._layers = [builder.layer(index) for index in range(arch.num_layers)]

    def new_cache(self) -> StaticKVCache:
        """An empty cache for one request."""
        if self._single_row is not None:
            return self._single_row.new_cache()
        return StaticKVCache(
            num_layers=self.arch.num_layers,
            num_kv_heads=self.arch.num_kv_heads,
            head_dim=self.arch.head_dim,
            dtype=self.cache_dtype,
            device=self.device,
        )

    def check_press(self, press: Press, in_cache: bool) -> None:
        """Every press works here, but not beside a sliding window, which counts entries."""
        if self.windows != {None}:
            raise ConfigError(
                "press",
                f"{press.name} can't work on {self.name}, which attends through a sliding window",
            )

    def new_pressed_cache(self, in_cache: bool) -> PressedKVCache:
        """An empty cache that a press may work on."""
        return PressedKVCache(
            num_layers=self.arch.num_layers,
            num_heads=self.arch.num_heads,
            num_kv_heads=self.arch.num_kv_heads,
            head_dim=self.arch.head_dim,
            dtype=self.cache_dtype,
            device=self.device,
            rotary=self.rotary,
            in_cache=in_cache,
        )

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, cache: KVCache, num_logits: int) -> Tensor:
        """Append `token_ids` [n]; logits [num_logits, vocab_size] in float32 of the last ones."""
        assert isinstance(cache, (StaticKVCache, PressedKVCache))
        count = len(token_ids)
        self.check_room(cache, count)
        if count <= FEW_ROWS and self._single_row is not None and isinstance(cache, RowCache):
            return self._row_by_row(self._single_row, token_ids, cache, num_logits)
        block = self._block(count, cache)
        views = cache.views(count)
        recorders = cache.queries.writers(count) if isinstance(cache, PressedKVCache) else None
        slots = (
            Slots(new.copy_, keys, values, record)
            for new, keys, values, record in zip(
                views.new, views.keys, views.values,
                recorders or (None,) * len(views.new), strict=True,
            )
        )  # fmt: skip
        logits = self.run(token_ids, block, slots, num_logits)
        cache.advance(count)
        return logits.float()

    def _row_by_row(
        self, step: SingleRowStep, token_ids: Tensor, cache: RowCache, num_logits: int
    ) -> Tensor:
        table = self._embedding  # a view of it for each token: `index_select` takes five times that
        rows = [step.run(table.narrow(0, token, 1), cache) for token in token_ids.tolist()]
        last = rows[-1] if num_logits == 1 else torch.cat(rows[-num_logits:])
        return self._head(last).float()

    def check_room(self, cache: KVCache, count: int) -> None:
        """Raises ValueError where `count` more tokens would pass the end of the context."""
        end = cache.position + count
        if end > self.context:
            raise ValueError(f"{self.name} reads at most {self.context} tokens, not {end}")

    def run(
        self, token_ids: Tensor, block: Block, slots: Iterable[Slots], num_logits: int
    ) -> Tensor:
        """The layers over `token_ids` [n]: logits of the last ones, in the model's dtype.

        No shape and no branch here depends on how much the cache holds.
        """
        hidden = self._embedding.index_select(0, token_ids).to(self._hidden_dtype)
        for layer, own in zip(self._layers, slots, strict=True):
            attended = self._attend(layer, block, hidden, own)
            if layer.mlp_out is None:
                hidden = layer.out(torch.cat((attended, layer.mlp_in(hidden)), -1), hidden)
            else:
                hidden = layer.out(attended, hidden)
                hidden = layer.mlp_out(layer.mlp_in(hidden), hidden)
        return self._head(hidden[len(token_ids) - num_logits :])

    def _attend(
        self,
        layer: Layer,
        block: Block,
        rows: Tensor,  # [n, hidden]
        slots: Slots,
    ) -> Tensor:  # [n, heads * head_dim]
        arch, count = self.arch, rows.shape[0]
        projected = layer.qkv(rows).to(self.cache_dtype)
        heads = projected.view(1, count, -1, arch.head_dim).transpose(1, 2)
        query, new_entries = heads.split_with_sizes((arch.num_heads, 2 * arch.num_kv_heads), 1)
        query_key = heads.narrow(1, 0, arch.num_heads + arch.num_kv_heads)
        if layer.qk_norm is not None:
            query_key.copy_(layer.qk_norm(query_key))
        block.rotate_(query_key)
        slots.write(new_entries)
        if slots.record is not None:
            slots.record(query)
        attended = block.attend(query, slots.keys, slots.values, layer.window)
        if count > 1:
            attended = attended.transpose(1, 2)
        return attended.reshape(count, -1).to(rows.dtype)

    def _block(self, count: int, cache: StaticKVCache | PressedKVCache) -> Block:
        whole = cache.num_entries() == 0 and self.windows == {None}
        # One mask per kind of layer: by its window, and by its entries where layers differ.
        masks: dict[tuple[int | None, int], Tensor | None] = {}
        kv_heads, dim = self.arch.num_kv_heads, self.arch.head_dim
        per_key = self.arch.num_heads // kv_heads
        # A CPU reads keys and values once where all queries of a head of keys are its rows. A GPU
        # would have fewer heads to keep busy with.
        folded = per_key > 1 and not whole and self.device.type == "cpu"
        dtype = self._long_dtype if count >= LONG_BLOCK else self.cache_dtype
        converted = dtype != self.cache_dtype

        def attend(query: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
            kind = (window, keys.shape[2])
            if kind not in masks:  # none where the block is the whole sequence
                mask = None if whole else self._masks.of(kind[1] - count, count, window)
                if mask is not None:
                    mask = mask.to(dtype)
                    mask = mask.repeat(per_key, 1) if folded else mask
                masks[kind] = mask
            if converted:
                query, keys, values = query.to(dtype), keys.to(dtype), values.to(dtype)
            attended = F.scaled_dot_product_attention(
                query.reshape(1, kv_heads, -1, dim) if folded else query,
                keys,
                values,
                attn_mask=masks[kind],
                is_causal=whole and count > 1,
                enable_gqa=per_key > 1 and not folded,
            )
            return attended.reshape(query.shape) if folded else attended

        return Block(self.rotary.rotation(cache.position, count), attend)
