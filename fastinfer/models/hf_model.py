"""Any causal language model of transformers behind the `Decoder` protocol.

This is the one file that calls transformers' forward and the one that touches its cache. The facts
it rests on (transformers 5.24): the argument is `cache`; a layer's `update` returns what attention
reads; masks are built from `get_seq_length` and `get_mask_sizes`. The layer below owns its buffers
and a cursor, so a rollback moves an integer and copies nothing, and `crop`, which changed its
meaning twice, is never called.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from fastinfer.models.base import KVCache

CHUNK = 256


class CursorLayer(DynamicLayer):
    """One layer's keys and values in buffers that grow by chunks; `length` is the cursor.

    Models with sliding windows get the full cache: their mask does the sliding, and a rollback
    stays exact.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.length = 0
        self._buffers: tuple[Tensor, Tensor] | None = None  # each [1, heads, capacity, head_dim]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write at the cursor; return all up to the new one: [1, heads, length, head_dim]."""
        end = self.length + key_states.shape[-2]
        buffers = self._reserve(key_states, value_states, end)
        for buffer, states in zip(buffers, (key_states, value_states), strict=True):
            buffer[:, :, self.length : end] = states
        self.length = end
        self.keys, self.values = (buffer[:, :, :end] for buffer in buffers)
        self.is_initialized = True
        return self.keys, self.values

    def _reserve(self, keys: Tensor, values: Tensor, length: int) -> tuple[Tensor, Tensor]:
        if self._buffers is not None and self._buffers[0].shape[-2] >= length:
            return self._buffers
        capacity = -(-length // CHUNK) * CHUNK
        grown = []
        for index, states in enumerate((keys, values)):
            buffer = states.new_empty(*states.shape[:2], capacity, states.shape[-1])
            if self._buffers is not None:
                buffer[:, :, : self.length] = self._buffers[index][:, :, : self.length]
            grown.append(buffer)
        self._buffers = (grown[0], grown[1])
        return self._buffers

    def get_seq_length(self) -> int:
        """Entries before the cursor."""
        return self.length

    def num_bytes(self) -> int:
        """Bytes of the entries before the cursor."""
        if self._buffers is None:
            return 0
        return sum(b[:, :, : self.length].numel() * b.element_size() for b in self._buffers)


class HFCache:
    """The cache of one request: a transformers `Cache` of cursor layers."""

    def __init__(self) -> None:
        self.cache = Cache(layer_class_to_replicate=CursorLayer)

    @property
    def layers(self) -> list[CursorLayer]:
        """One per layer, made at the first forward."""
        return cast("list[CursorLayer]", self.cache.layers)

    @property
    def length(self) -> int:
        """Tokens covered."""
        return self.layers[0].length if self.layers else 0

    def rollback(self, length: int) -> None:
        """Move every layer's cursor back."""
        assert length <= self.length, "a rollback never moves forward"
        for layer in self.layers:
            layer.length = length

    def num_entries(self) -> int:
        """Entries per layer: nothing is compressed here, so as many as tokens."""
        return self.length

    def num_bytes(self) -> int:
        """Bytes of the entries, all layers."""
        return sum(layer.num_bytes() for layer in self.layers)


def context_of(config: Any) -> int:
    """The longest sequence that a model with this config can read."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 2048  # ALiBi models (Bloom) name no limit; this is what Bloom was trained on


class HFDecoder:
    """A transformers model. Its weights are shared by all requests."""

    backend = "transformers"

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self.model = model.eval().requires_grad_(False)
        self.name = name
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        self.context = context_of(model.config)
        self.dtype = model.dtype
        self.device = model.device

    def new_cache(self) -> KVCache:
        """An empty cache."""
        return HFCache()

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, cache: KVCache, num_logits: int) -> Tensor:
        """Append `token_ids` [n]; logits [num_logits, vocab_size] in float32 of the last ones."""
        assert isinstance(cache, HFCache)
        output = self.model(
            input_ids=token_ids.unsqueeze(0),
            cache=cache.cache,
            use_cache=True,
            logits_to_keep=num_logits,
        )
        # A split model's last layer may be on another device than its first.
        logits: Tensor = output.logits[0].to(self.device, torch.float32)
        return logits
