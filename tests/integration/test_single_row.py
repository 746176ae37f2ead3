"""The step of one token for small models on a CPU: when it is used, and that it gives the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig

from fastinfer.models.kv_cache import CHUNK
from fastinfer.models.single_row import RowCache, covers
from fastinfer.models.transformer import FEW_ROWS, TransformerDecoder, from_state_dict

pytestmark = pytest.mark.integration

SHAPE: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
}
CONFIGS = {
    "plain": {},
    "tied": {"tie_word_embeddings": True},
    "whole-rotary": {"rope_parameters": {"rope_theta": 5000.0, "partial_rotary_factor": 1.0}},
    "no-bias": {"attention_bias": False},
}
NOT_COVERED = [
    {"use_parallel_residual": False},
    {"hidden_act": "relu"},
    {"hidden_act": "gelu_fast"},
    {"hidden_size": 512, "intermediate_size": 2048},  # bound by its matrices: nothing to gain
]


def decoder_of(options: dict[str, Any], dtype: torch.dtype = torch.float32) -> TransformerDecoder:
    torch.manual_seed(0)
    config = GPTNeoXConfig(**{**SHAPE, **options})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    return from_state_dict(config.to_dict(), model.state_dict(), dtype, torch.device("cpu"))


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 211, (CHUNK + 40,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CONFIGS)
def test_it_equals_the_general_forward(name: str, dtype: torch.dtype, ids: torch.Tensor) -> None:
    """Through a rollback, and past the point where the cache has to grow."""
    decoder = decoder_of(CONFIGS[name], dtype)
    whole = decoder.forward(ids, decoder.new_cache(), len(ids))
    cache = decoder.new_cache()
    assert isinstance(cache, RowCache)
    for part in ids[: CHUNK - 8].split(CHUNK // 2):  # a first block would get room for more
        decoder.forward(part, cache, 1)
    storage = cache.storage
    decoder.forward(ids[:5], cache, 1)
    cache.rollback(CHUNK - 8)
    rows = [
        decoder.forward(part, cache, len(part))
        for part in ids[CHUNK - 8 :].split([1, FEW_ROWS, *[1] * (len(ids) - CHUNK + 7 - FEW_ROWS)])
    ]
    assert cache.storage is not storage
    assert cache.length == len(ids)
    # The general forward's small matrices are float32 as well, and the head is the same.
    assert float((torch.cat(rows) - whole[CHUNK - 8 :]).abs().max()) < 1e-4


def test_only_the_last_rows_are_asked_for(ids: torch.Tensor) -> None:
    decoder = decoder_of({})
    one, two = decoder.new_cache(), decoder.new_cache()
    last = decoder.forward(ids[:2], one, 1)
    both = decoder.forward(ids[:2], two, 2)
    assert last.shape == (1, 211)
    assert both.shape == (2, 211)
    assert torch.allclose(last, both[1:], atol=1e-6)


def test_logits_stay_when_the_next_token_comes(ids: torch.Tensor) -> None:
    """The buffers are used again; what was handed out is not one of them."""
    decoder = decoder_of({})
    cache = decoder.new_cache()
    first = decoder.forward(ids[:1], cache, 1)
    before = first.clone()
    decoder.forward(ids[1:2], cache, 1)
    assert torch.equal(first, before)


@pytest.mark.parametrize("options", NOT_COVERED)
def test_other_models_take_the_general_forward(options: dict[str, Any]) -> None:
    decoder = decoder_of(options)
    assert not isinstance(decoder.new_cache(), RowCache)
    assert covers(decoder.arch) == ("hidden_size" in options)
