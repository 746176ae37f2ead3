"""Our decoder against transformers, on tiny random models of every covered family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from fastinfer.models import layers, linear, transformer
from fastinfer.models.architectures import UnsupportedArchitecture, read_architecture
from fastinfer.models.transformer import TransformerDecoder, from_state_dict, load_decoder

pytestmark = pytest.mark.integration

CPU = torch.device("cpu")
TOLERANCE = 1e-4

SMALL: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
GROUPED = {**SMALL, "num_key_value_heads": 2}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

CONFIGS = {
    "neox": GPTNeoXConfig(**SMALL),
    "neox-sequential": GPTNeoXConfig(**SMALL, use_parallel_residual=False),
    "neox-full-rotary": GPTNeoXConfig(
        **SMALL, rope_parameters={"rope_theta": 5000.0, "partial_rotary_factor": 1.0}
    ),
    "neox-tied": GPTNeoXConfig(**SMALL, tie_word_embeddings=True, hidden_act="gelu_fast"),
    "neox-no-bias": GPTNeoXConfig(**SMALL, attention_bias=False, hidden_act="relu"),
    "neox-linear": GPTNeoXConfig(
        **SMALL, rope_parameters={**LINEAR, "partial_rotary_factor": 0.25}
    ),
    "neox-wide": GPTNeoXConfig(**{**SMALL, "hidden_size": 256, "intermediate_size": 640}),
    "llama": LlamaConfig(**SMALL),
    "llama-grouped": LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "llama-bias": LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True),
    "llama-head-dim": LlamaConfig(**GROUPED, head_dim=32, hidden_act="gelu_pytorch_tanh"),
    "llama-3": LlamaConfig(**GROUPED, rope_parameters=LLAMA3),
    "llama-yarn": LlamaConfig(**GROUPED, rope_parameters=YARN),
    "llama-wide": LlamaConfig(**{**GROUPED, "hidden_size": 256, "intermediate_size": 640}),
    "mistral": MistralConfig(**GROUPED, sliding_window=None),
    "mistral-window": MistralConfig(**GROUPED, sliding_window=9),
    "mistral-wide": MistralConfig(
        **{**GROUPED, "hidden_size": 256, "intermediate_size": 640}, sliding_window=9
    ),
    "qwen2": Qwen2Config(**GROUPED, tie_word_embeddings=True),
    "qwen2-window": Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=9, max_window_layers=1
    ),
    "qwen2-yarn": Qwen2Config(**GROUPED, rope_parameters={**YARN, "truncate": False}),
    "qwen3": Qwen3Config(**GROUPED, head_dim=24),
    "qwen3-bias": Qwen3Config(**GROUPED, head_dim=16, attention_bias=True),
}


def random_model(config: Any) -> PreTrainedModel:
    """A model whose every parameter, norms and biases too, differs from its initial value."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter) * 0.05)
    return model


def ours(model: PreTrainedModel, dtype: torch.dtype = torch.float32) -> TransformerDecoder:
    return from_state_dict(model.config.to_dict(), model.state_dict(), dtype, CPU)


def theirs(model: PreTrainedModel, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model(ids[None]).logits[0]


@pytest.fixture(params=CONFIGS, scope="module")
def pair(request: pytest.FixtureRequest) -> tuple[PreTrainedModel, TransformerDecoder]:
    model = random_model(CONFIGS[request.param])
    return model, ours(model)


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(0, 211, (60,), generator=torch.Generator().manual_seed(1))


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return float((a - b).abs().max())


Pair = tuple[PreTrainedModel, TransformerDecoder]


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_blocks_equal_transformers(pair: Pair, ids: Tensor, size: int) -> None:
    model, decoder = pair
    cache = decoder.new_cache()
    logits = [decoder.forward(part, cache, len(part)) for part in ids.split(size)]
    assert cache.length == cache.num_entries() == 60
    assert difference(torch.cat(logits), theirs(model, ids)) < TOLERANCE


def test_prefill_then_single_tokens_equal_transformers(pair: Pair, ids: Tensor) -> None:
    model, decoder = pair
    cache = decoder.new_cache()
    logits = [decoder.forward(ids[:50], cache, 3)]
    logits += [decoder.forward(ids[i : i + 1], cache, 1) for i in range(50, 60)]
    assert difference(torch.cat(logits), theirs(model, ids)[47:]) < TOLERANCE


def test_rollback_equals_a_fresh_sequence(pair: Pair, ids: Tensor) -> None:
    model, decoder = pair
    cache = decoder.new_cache()
    decoder.forward(ids[:30], cache, 1)
    decoder.forward(ids[40:47], cache, 7)
    cache.rollback(33)
    cache.rollback(20)
    logits = decoder.forward(ids[20:25], cache, 5)
    assert difference(logits, theirs(model, ids[:25])[20:]) < TOLERANCE
    cache.rollback(0)
    assert difference(decoder.forward(ids[:9], cache, 9), theirs(model, ids[:9])) < TOLERANCE


def test_two_requests_do_not_disturb_each_other(pair: Pair, ids: Tensor) -> None:
    model, decoder = pair
    one, two = decoder.new_cache(), decoder.new_cache()
    other = ids.flip(0)
    decoder.forward(ids[:20], one, 1)
    decoder.forward(other[:31], two, 1)
    a, b = decoder.forward(ids[20:22], one, 2), decoder.forward(other[31:33], two, 2)
    assert difference(a, theirs(model, ids[:22])[20:]) < TOLERANCE
    assert difference(b, theirs(model, other[:33])[31:]) < TOLERANCE


@pytest.mark.parametrize("hardware", ["matrix units", "bfloat16", "neither"])
@pytest.mark.parametrize(
    "name", ["neox", "neox-wide", "llama-grouped", "llama-wide", "mistral-wide", "qwen3"]
)
def test_bfloat16_is_as_near_to_float32_as_transformers(
    name: str, hardware: str, monkeypatch: pytest.MonkeyPatch, ids: Tensor
) -> None:
    """Same weights rounded to bfloat16: our error against float32 is not above transformers'.

    Of blocks that attend in float32, of long ones that do so in bfloat16, and where all but the
    weights is float32.
    """
    monkeypatch.setattr(transformer, "LONG_BLOCK", 8)
    monkeypatch.setattr(transformer, "cpu_has_matrix_units", lambda: hardware == "matrix units")
    monkeypatch.setattr(layers, "cpu_has_bfloat16", lambda: hardware != "neither")
    model = random_model(CONFIGS[name]).to(torch.bfloat16)
    reference = theirs(random_model(CONFIGS[name]).to(torch.bfloat16).float(), ids)
    decoder = ours(model, torch.bfloat16)
    cache = decoder.new_cache()
    blocks = [ids[:40], *ids[40:50].split(1), ids[50:]]
    logits = torch.cat([decoder.forward(part, cache, len(part)) for part in blocks])
    assert logits.dtype == torch.float32

    def error(other: Tensor) -> float:
        return float((other.float() - reference).pow(2).mean().sqrt())

    assert error(logits) < 1.1 * error(theirs(model, ids))
    assert error(logits) < 0.02 * float(reference.std())


@pytest.mark.parametrize("name", ["neox-wide", "llama-wide"])
def test_every_kind_of_product_gives_the_same_logits(
    name: str, monkeypatch: pytest.MonkeyPatch, ids: Tensor
) -> None:
    """Machines without FBGEMM take oneDNN's, those without that the plain one."""
    model = random_model(CONFIGS[name])
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    half = ours(model)
    monkeypatch.setattr(linear, "has_kernel", lambda: False)
    packed = ours(model)
    monkeypatch.setattr(linear, "_packable", lambda *_: False)
    plain = ours(model)
    for decoder in (half, packed, plain):
        cache = decoder.new_cache()
        blocks = [ids[:50], *ids[50:55].split(1), ids[55:]]
        logits = torch.cat([decoder.forward(part, cache, len(part)) for part in blocks])
        assert difference(logits, theirs(model, ids)) < TOLERANCE


def test_context_end_is_refused(ids: Tensor) -> None:
    decoder = ours(random_model(CONFIGS["neox"]))
    cache = decoder.new_cache()
    for _ in range(2):
        decoder.forward(ids, cache, 1)
    with pytest.raises(ValueError, match="at most 128 tokens"):
        decoder.forward(ids, cache, 1)
    assert cache.length == 120


@pytest.mark.parametrize("shard", ["10MB", "60KB"])
@pytest.mark.parametrize("name", ["neox", "llama-grouped"])
def test_folder_equals_memory(name: str, shard: str, tmp_path: Path, ids: Tensor) -> None:
    model = random_model(CONFIGS[name])
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "60KB")
    decoder = load_decoder(tmp_path, torch.float32, CPU)
    assert decoder.name == tmp_path.name
    assert difference(decoder.forward(ids, decoder.new_cache(), 60), theirs(model, ids)) < TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mapped_embedding_gives_the_same_logits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ids: Tensor
) -> None:
    """Large embeddings stay in the file, in its dtype; their rows are converted when read."""
    random_model(CONFIGS["llama-wide"]).save_pretrained(tmp_path)
    copied = load_decoder(tmp_path, dtype, CPU)
    monkeypatch.setattr(layers, "LARGE_EMBEDDING", 0)
    mapped = load_decoder(tmp_path, dtype, CPU)
    assert mapped._embedding.dtype == torch.float32
    a, b = (d.forward(ids, d.new_cache(), 60) for d in (copied, mapped))
    assert torch.equal(a, b)


def test_old_gpt_neox_names_are_read(ids: Tensor) -> None:
    """Checkpoints from before transformers 5 call the output matrix embed_out, and carry masks."""
    model = random_model(CONFIGS["neox"])
    tensors = dict(model.state_dict())
    tensors["embed_out.weight"] = tensors.pop("lm_head.weight")
    tensors["gpt_neox.layers.0.attention.masked_bias"] = torch.tensor(-1e9)
    config = model.config.to_dict()
    config |= {"rotary_pct": 0.25, "rotary_emb_base": 10000}
    del config["rope_parameters"]
    decoder = from_state_dict(config, tensors, torch.float32, CPU)
    assert difference(decoder.forward(ids, decoder.new_cache(), 60), theirs(model, ids)) < TOLERANCE


REFUSED = [
    (BloomConfig(), "model_type"),
    ({**LlamaConfig(**SMALL).to_dict(), "hidden_act": "mish"}, "hidden_act"),
    (
        {
            **LlamaConfig(**SMALL).to_dict(),
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
        },
        "rope_type",
    ),
    ({**LlamaConfig(**SMALL).to_dict(), "quantization_config": {"bits": 4}}, "quantization_config"),
    ({**LlamaConfig(**SMALL).to_dict(), "hidden_size": "wide"}, "config"),
    ({}, "model_type"),
]


@pytest.mark.parametrize(("config", "field"), REFUSED)
def test_what_is_not_covered_is_refused_by_name(config: Any, field: str) -> None:
    mapping = config if isinstance(config, dict) else config.to_dict()
    with pytest.raises(UnsupportedArchitecture) as caught:
        read_architecture(mapping)
    assert caught.value.field == field


def test_reading_a_config_leaves_it_unchanged() -> None:
    config = CONFIGS["llama-3"].to_dict()
    before = json.dumps(config, default=str)
    read_architecture(config)
    assert json.dumps(config, default=str) == before


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedArchitecture, match=r"no config\.json"):
        load_decoder(tmp_path, torch.float32, CPU)
    model = random_model(CONFIGS["llama"])
    model.config.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedArchitecture, match=r"no model\.safetensors"):
        load_decoder(tmp_path, torch.float32, CPU)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(UnsupportedArchitecture, match="can't be read"):
        load_decoder(tmp_path, torch.float32, CPU)


def test_a_missing_tensor_is_named() -> None:
    model = random_model(CONFIGS["llama"])
    tensors = dict(model.state_dict())
    del tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(UnsupportedArchitecture, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        from_state_dict(model.config.to_dict(), tensors, torch.float32, CPU)
