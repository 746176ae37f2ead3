"""Record which entries kvpress keeps on a small random Llama, for `test_kvpress_parity.py`.

Runs in an environment of its own, see README.md beside it: kvpress needs an older transformers.
Writes `kvpress.safetensors`: per layer the cached keys (after rotation), the values and the
queries (after rotation), and per press, ratio, layer and head the kept indices, ascending.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from kvpress import (
    ExpectedAttentionPress,
    KeyDiffPress,
    KnormPress,
    ObservedAttentionPress,
    SnapKVPress,
    StreamingLLMPress,
    TOVAPress,
)
from kvpress.presses.base_press import BasePress
from kvpress.utils import get_prerope_query_states
from safetensors.torch import save_file
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

RATIOS = (0.25, 0.5, 0.75)
LENGTH = 128
VOCAB = 256
WINDOW = 16  # of SnapKV: its default of 64 would fill what is kept at 0.75
KINDS: dict[str, type[BasePress]] = {
    "streaming": StreamingLLMPress,
    "knorm": KnormPress,
    "snapkv": SnapKVPress,
    "tova": TOVAPress,
    "observed": ObservedAttentionPress,
    "expected_attention": ExpectedAttentionPress,
    "keydiff": KeyDiffPress,
}


class Recorder(BasePress):
    """Removes nothing; notes what a press is given."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def compress(
        self,
        module: Any,
        hidden_states: Tensor,
        keys: Tensor,
        values: Tensor,
        attentions: Tensor,
        kwargs: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """Note the tensors of this layer."""
        plain = get_prerope_query_states(module, hidden_states)
        queries, _ = apply_rotary_pos_emb(plain, plain, *kwargs["position_embeddings"])
        for name, tensor in (("keys", keys), ("values", values), ("queries", queries)):
            self.tensors[f"{name}.{module.layer_idx}"] = tensor[0].clone()
        return keys, values


def small_llama() -> LlamaForCausalLM:
    """Random weights, large enough that attention is far from uniform."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, initializer_range=0.3,
        max_position_embeddings=1024, attn_implementation="eager",
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def run(model: LlamaForCausalLM, press: BasePress) -> DynamicCache:
    """The cache after the fixed prompt was read under `press`."""
    # No token twice: in the first layer its keys would have one norm, and kvpress a free choice.
    prompt = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(1))[None, :LENGTH]
    cache = DynamicCache()
    with press(model):
        model(prompt, past_key_values=cache, output_attentions=True)
    return cache


def kept_indices(full: Tensor, kept: Tensor) -> Tensor:
    """Where each row of `kept` [heads, n, dim] lies in `full` [heads, length, dim]; ascending."""
    same = (kept[:, :, None] == full[:, None]).all(-1)  # [heads, n, length]
    assert (same.sum(-1) == 1).all(), "two entries share a key: the indices are not known"
    return same.int().argmax(-1).sort(-1).values


def main() -> None:
    """Write the file."""
    model = small_llama()
    recorder = Recorder()
    run(model, recorder)
    tensors = dict(recorder.tensors)
    for name, kind in KINDS.items():
        for ratio in RATIOS:
            options = {"window_size": WINDOW} if kind is SnapKVPress else {}
            cache = run(model, kind(compression_ratio=ratio, **options))
            for index, layer in enumerate(cache.layers):
                indices = kept_indices(tensors[f"keys.{index}"], layer.keys[0])
                tensors[f"kept.{name}.{ratio}.{index}"] = indices.to(torch.uint8)
    tensors["frequencies"] = model.model.rotary_emb.inv_freq.clone()
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        Path(__file__).with_name("kvpress.safetensors"),
        metadata={"kvpress": "0.5.5", "snapkv_window": str(WINDOW)},
    )


if __name__ == "__main__":
    main()
