"""Any causal language model of transformers behind the `Decoder` protocol.

This is the one file that calls transformers' forward and the one that touches its cache. The facts
it rests on (transformers 5.24): the argument is `cache`; a layer's `update` returns what attention
reads; masks are built from `get_seq_length` and `get_mask_sizes`, so they count entries, while
`position_ids`, where given, are the positions. The layer below owns its buffers and a cursor, so a
rollback moves an integer and copies nothing, and `crop`, which changed its meaning twice, is never
called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from fastinfer.config import ConfigError
from fastinfer.models.base import KVCache
from fastinfer.presses.base import LayerView, Press

CHUNK = 256

# Models (by `model_type`) that take positions from `position_ids` alone and so stay exact when
# entries are dropped. ALiBi (Bloom, MPT) and local attention (GPT-Neo) count entries instead.
PRESSABLE = ("gpt2", "opt", "gpt_neox", "llama", "mistral", "qwen2", "qwen3")


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

    def allocated_bytes(self) -> int:
        """Bytes of the buffers."""
        return 0 if self._buffers is None else sum(buffer.nbytes for buffer in self._buffers)

    def live(self) -> tuple[Tensor, Tensor]:
        """Keys and values before the cursor, each [heads, length, head_dim]."""
        assert self._buffers is not None, "something has been read"
        keys, values = (buffer[0, :, : self.length] for buffer in self._buffers)
        return keys, values

    def keep(self, indices: Tensor) -> None:
        """Keep the entries [heads, n], ascending, in buffers of a new size."""
        kept = []
        rows = indices[..., None]
        for states in self.live():
            kept.append(states.gather(1, rows.expand(-1, -1, states.shape[-1])).unsqueeze(0))
        self.length, self._buffers = 0, None
        self.update(kept[0], kept[1])


class HFCache:
    """The cache of one request: a transformers `Cache` of cursor layers.

    Presses that need keys and values alone may drop entries; positions are always the original.
    """

    def __init__(self) -> None:
        self.cache = Cache(layer_class_to_replicate=CursorLayer)
        self.floor = 0  # a rollback goes no further: entries below it have been dropped
        self._dropped = 0
        self._kept: list[Tensor] = []  # tokens that the last drop left, per layer [heads, kept]

    @property
    def layers(self) -> list[CursorLayer]:
        """One per layer, made at the first forward."""
        return cast("list[CursorLayer]", self.cache.layers)

    @property
    def length(self) -> int:
        """Tokens covered."""
        return self.num_entries() + self._dropped

    @property
    def position(self) -> int:
        """The next token's: its place in the sequence."""
        return self.length

    def rollback(self, length: int) -> None:
        """Move every layer's cursor back."""
        assert self.floor <= length <= self.length, "a rollback stays above what was committed"
        for layer in self.layers:
            layer.length = length - self._dropped

    def num_entries(self) -> int:
        """Entries per layer."""
        return self.layers[0].length if self.layers else 0

    def num_bytes(self) -> int:
        """Bytes of the entries, all layers."""
        return sum(layer.num_bytes() for layer in self.layers)

    def allocated_bytes(self) -> int:
        """Bytes of the buffers, all layers."""
        return sum(layer.allocated_bytes() for layer in self.layers)

    def record_queries(self, num_queries: int) -> None:
        """There are none here: `check_press` refuses a press that asks."""
        assert num_queries == 0, "transformers shows no queries"

    def layer_lengths(self) -> tuple[int, ...]:
        """Entries of each layer."""
        return tuple(layer.length for layer in self.layers)

    def layer_views(self) -> Iterator[LayerView]:
        """What a press sees of each layer, in order."""
        for index, layer in enumerate(self.layers):
            keys, values = layer.live()
            yield LayerView(
                keys=keys,
                values=values,
                positions=self.tokens(index),
                next_position=self.position,
                turn=_no_turn,
                scale=keys.shape[-1] ** -0.5,
                layer=index,
                num_layers=len(self.layers),
            )

    def tokens(self, layer: int) -> Tensor:
        """Which token of the sequence each entry is: [heads, entries] int64."""
        keys, _ = self.layers[layer].live()
        newer = torch.arange(self.floor, self.length, device=keys.device).expand(len(keys), -1)
        return torch.cat((self._kept[layer], newer), -1) if self._kept else newer

    @torch.inference_mode()
    def keep(self, kept: Sequence[Tensor]) -> None:
        """Keep these entries, as many in every layer: masks here are the same for all."""
        assert len({indices.shape[-1] for indices in kept}) == 1, "as many in every layer"
        tokens = [self.tokens(i).gather(-1, indices) for i, indices in enumerate(kept)]
        length = self.length
        for layer, indices in zip(self.layers, kept, strict=True):
            layer.keep(indices)
        self.floor, self._kept = length, tokens
        self._dropped = length - self.num_entries()


def _no_turn(heads: Tensor, positions: Tensor) -> Tensor:
    raise AssertionError("only presses that read queries turn anything, and they are refused")


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
    # Attention without a fused kernel, as Bloom's, holds scores of [heads, block, all entries].
    prefill_block = 512

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

    def check_press(self, press: Press, in_cache: bool) -> None:
        """Presses on keys and values work where positions are told, not counted from entries."""
        ours = "GPT-NeoX, Llama, Mistral, Qwen2 and Qwen3 in fastinfer's own decoder"
        config = self.model.config
        slides = "sliding_attention" in (getattr(config, "layer_types", None) or ())
        slides |= config.model_type == "mistral" and config.sliding_window is not None
        if press.num_queries:
            raise ConfigError(
                "press",
                f"{press.name} needs queries, which {self.name} does not show through "
                f"transformers; it works on {ours}",
            )
        if in_cache:
            raise ConfigError(
                "press_positions",
                f"in_cache can't be had for {self.name} through transformers; it works on {ours}",
            )
        if config.model_type not in PRESSABLE or slides:
            raise ConfigError(
                "press",
                f"can't work on {self.name} ({config.model_type}), whose attention counts entries; "
                f"through transformers it works on {', '.join(PRESSABLE)} without sliding windows",
            )

    def new_pressed_cache(self, in_cache: bool) -> HFCache:
        """An empty cache; any of them can be pressed."""
        assert not in_cache, "refused by check_press"
        return HFCache()

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, cache: KVCache, num_logits: int) -> Tensor:
        """Append `token_ids` [n]; logits [num_logits, vocab_size] in float32 of the last ones."""
        assert isinstance(cache, HFCache)
        positions: dict[str, Tensor] = {}
        if cache.length > cache.num_entries():
            end = cache.length + len(token_ids)
            steps = torch.arange(cache.length, end, device=token_ids.device)
            positions["position_ids"] = steps.unsqueeze(0)
        output = self.model(
            input_ids=token_ids.unsqueeze(0),
            cache=cache.cache,
            use_cache=True,
            logits_to_keep=num_logits,
            **positions,
        )
        # A split model's last layer may be on another device than its first.
        logits: Tensor = output.logits[0].to(self.device, torch.float32)
        return logits
