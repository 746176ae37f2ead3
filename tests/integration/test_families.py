"""Pairs of every family, tiny and random: from folders, from memory, and over several devices."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import byte_tokenizer, save_tiny, tiny_neox
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PreTrainedModel,
    Qwen2Config,
)

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.events import Role
from fastinfer.models import devices, loading
from fastinfer.models.loading import load_models

pytestmark = pytest.mark.integration

ROWS = 264  # the tokenizer has 257 ids
PROMPT = "It was a dark and stormy night; it was a dark"


def config_of(family: str, layers: int) -> Any:
    small = {"vocab_size": ROWS, "bos_token_id": 0, "eos_token_id": 0, "initializer_range": 0.4}
    modern = {**small, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": layers,
              "intermediate_size": 64, "max_position_embeddings": 256}  # fmt: skip
    match family:
        case "bloom":
            return BloomConfig(**small, hidden_size=32, n_head=4, n_layer=layers)
        case "opt":
            return OPTConfig(
                **small, hidden_size=32, ffn_dim=64, num_attention_heads=4, init_std=0.4,
                num_hidden_layers=layers, max_position_embeddings=256, word_embed_proj_dim=32,
                pad_token_id=1,
            )  # fmt: skip
        case "gpt2":
            return GPT2Config(**small, n_embd=32, n_head=4, n_layer=layers, n_positions=256)
        case "gpt_neox":
            return GPTNeoXConfig(**modern)
        case "llama":
            return LlamaConfig(**modern, num_key_value_heads=2)
        case "qwen2":
            return Qwen2Config(**modern, num_key_value_heads=2)
        case _:
            return MistralConfig(**modern, num_key_value_heads=2, sliding_window=None)


OWN = ("gpt_neox", "llama", "qwen2", "mistral")
FAMILIES = ("bloom", "opt", "gpt2", *OWN)


def model_of(family: str, layers: int, seed: int) -> PreTrainedModel:
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(config_of(family, layers)).float().eval()


def pair(family: str) -> tuple[PreTrainedModel, PreTrainedModel]:
    """A target and a draft that agrees with it now and then: its weights, disturbed a little."""
    target, draft = model_of(family, 2, 1), model_of(family, 2, 1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in draft.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.add_(0.05 * weight.std(correction=0) * noise)
    return target, draft


def config(**options: object) -> DecodeConfig:
    base = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0}
    return DecodeConfig.from_mapping({**base, **options})


def greedy(model: PreTrainedModel, ids: list[int], count: int) -> tuple[int, ...]:
    """transformers itself, one whole forward a token, over the tokenizer's ids."""
    sequence = list(ids)
    with torch.inference_mode():
        for _ in range(count):
            logits = model(torch.tensor([sequence])).logits[0, -1, :257]
            sequence.append(int(logits.argmax()))
    return tuple(sequence[len(ids) :])


@pytest.mark.parametrize("family", FAMILIES)
def test_speculative_greedy_is_the_models_own_text(family: str, tmp_path: Path) -> None:
    target, draft = pair(family)
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(tmp_path / name)
        byte_tokenizer().save_pretrained(tmp_path / name)
    from_folders = load(
        target=str(tmp_path / "target"), draft=str(tmp_path / "draft"), dtype="float32",
        device="cpu",
    )  # fmt: skip
    in_memory = Engine.from_models(target=target, draft=draft, tokenizer=byte_tokenizer())
    expected = greedy(target, byte_tokenizer()(PROMPT)["input_ids"], 40)
    backend = "fastinfer" if family in OWN else "transformers"
    for engine in (from_folders, in_memory):
        assert set(engine.info.backends.values()) == {backend}
        runs = [
            engine.generate(PROMPT, config(**options))
            for options in (
                {"method": "autoregressive"},
                # Both tiny models cost the same: only a constant gamma drafts on.
                {"method": "speculative", "gamma_policy": "constant", "gamma": 3},
                {"method": "speculative", "draft": "prompt-lookup"},
            )
        ]
        assert [run.token_ids for run in runs] == [expected] * 3
        stage = runs[1].stats.stages[Role.TARGET]
        assert 0 < stage.num_accepted < stage.num_tested, "both verdicts are met"


def test_a_mismatched_pair_is_refused_with_the_id(tmp_path: Path) -> None:
    target = save_tiny(tmp_path / "target", 1)
    other = save_tiny(tmp_path / "other", 2, extra=("wave",))
    with pytest.raises(ConfigError, match="draft: its tokenizer is not the target's: id 257"):
        load(target=target, draft=other)


# --- models in memory ---------------------------------------------------------------------------


def test_models_in_memory_bring_their_ends_and_their_sampling() -> None:
    target = tiny_neox(1)
    target.generation_config.eos_token_id = [3, 9]
    target.generation_config.do_sample = True
    target.generation_config.top_k = 11
    models = loading.models_in_memory({Role.TARGET: target}, byte_tokenizer())
    assert models.end_ids == {0, 3, 9}
    assert models.defaults == {"top_k": 11}
    engine = Engine.from_models(target=target, tokenizer=byte_tokenizer())
    assert engine.info.defaults == {"top_k": 11}
    assert engine.info.preset == "custom"
    assert engine.folders == {}
    assert not engine.info.chat
    with pytest.raises(ConfigError, match="messages: this model has no chat template"):
        engine.chat_prompt([{"role": "user", "content": "hello"}])


def test_our_copy_does_not_follow_the_callers_model() -> None:
    target = tiny_neox(1)
    engine = Engine.from_models(target=target, tokenizer=byte_tokenizer())
    before = engine.generate(PROMPT, config(method="autoregressive")).token_ids
    with torch.no_grad():
        for weight in target.parameters():
            weight.zero_()
    assert engine.generate(PROMPT, config(method="autoregressive")).token_ids == before


def test_a_model_with_too_few_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"target: .* has 264 output rows, but its tokenizer"):
        Engine.from_models(
            target=tiny_neox(1), tokenizer=byte_tokenizer(tuple(f"x{i}" for i in range(9)))
        )


# --- what a folder says -------------------------------------------------------------------------


def test_end_ids_and_sampling_come_from_the_generation_config(tmp_path: Path) -> None:
    model = tiny_neox(1)
    model.generation_config.eos_token_id = [3, 9]
    model.generation_config.do_sample = True
    model.generation_config.temperature = 0.6
    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    models = load_models("nano", {Role.TARGET: str(tmp_path)}, "float32", "cpu")
    assert models.end_ids == {0, 3, 9}
    assert models.defaults == {"temperature": 0.6}


# --- a model beyond one GPU: a stand-in, since this needs several --------------------------------


def test_split_lays_the_target_out_over_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    target, draft = save_tiny(tmp_path / "target", 1), save_tiny(tmp_path / "draft", 2)
    expected = load(target=target, draft=draft, dtype="float32", device="cpu").generate(
        PROMPT, config()
    )
    asked: list[dict[str, Any]] = []
    original = AutoModelForCausalLM.from_pretrained

    def from_pretrained(folder: Path, *, device_map: str, **options: Any) -> PreTrainedModel:
        asked.append({"folder": str(folder), "device_map": device_map})
        return original(folder, **options)

    monkeypatch.setattr(devices, "_first_of_split", lambda: torch.device("cpu"))
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    with caplog.at_level(logging.INFO, logger=loading.__name__):
        engine = load(target=target, draft=draft, dtype="float32", device="split")
    assert asked == [{"folder": target, "device_map": "auto"}], "and the draft is not split"
    assert engine.info.backends == {Role.TARGET: "transformers", Role.DRAFT: "fastinfer"}
    assert engine.generate(PROMPT, config()).token_ids == expected.token_ids
