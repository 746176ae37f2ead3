"""The session over transformers models: caches, rollbacks and blocks change no logit."""

from __future__ import annotations

import pytest
import torch
from pressed import read
from tiny import tiny_neox
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from fastinfer.config import ConfigError
from fastinfer.events import Role
from fastinfer.models.compression import CompressionPlan
from fastinfer.models.hf_model import HFDecoder
from fastinfer.models.session import Session
from fastinfer.presses import PRESSES

pytestmark = pytest.mark.integration

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SMALL, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 128}


def family(name: str) -> PreTrainedModel:
    torch.manual_seed(0)
    models = {
        "gpt_neox": lambda: tiny_neox(0),
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**LLAMA)),
        # A window of 8 is passed while speculating: the full cache stays, the mask slides.
        "mistral": lambda: MistralForCausalLM(MistralConfig(**LLAMA, sliding_window=8)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**LLAMA)),
        "bloom": lambda: BloomForCausalLM(
            BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)
        ),
        "opt": lambda: OPTForCausalLM(
            OPTConfig(**SMALL, ffn_dim=48, max_position_embeddings=128, word_embed_proj_dim=32)
        ),
        "gpt2": lambda: GPT2LMHeadModel(
            GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128)
        ),
    }  # fmt: skip
    return models[name]().eval()


FAMILIES = ("gpt_neox", "llama", "mistral", "qwen2", "bloom", "opt", "gpt2")


def plain(model: PreTrainedModel, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()


def session(model: PreTrainedModel) -> Session:
    return Session(HFDecoder(model, "m"), Role.TARGET, 64)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("block", [1, 2, 7])
def test_cached_blocks_give_the_plain_logits(name: str, block: int) -> None:
    model = family(name)
    tokens = torch.randint(0, 64, (29,), generator=torch.Generator().manual_seed(1)).tolist()
    expected = plain(model, tokens)[:, :64]
    cached = session(model)
    for end in range(block, len(tokens) + 1, block):
        logits = cached.forward(tokens[:end], block)
        assert torch.allclose(logits, expected[end - block : end], atol=1e-4), (name, end)
    assert cached.num_tokens == len(tokens) // block * block


@pytest.mark.parametrize("name", FAMILIES)
def test_rollback_is_as_if_the_tokens_had_never_been(name: str) -> None:
    model = family(name)
    tokens = list(range(1, 25))
    cached = session(model)
    cached.forward(tokens[:10], 1)
    cached.forward([*tokens[:10], 60, 61, 62, 63], 4)
    cached.rollback(10)
    logits = cached.forward(tokens, 14)
    assert torch.allclose(logits, plain(model, tokens)[10:, :64], atol=1e-4)
    cached.rollback(0)
    assert (cached.cache_size().tokens, cached.cache_size().bytes) == (0, 0)
    assert torch.allclose(
        cached.forward(tokens[:3], 1)[0], plain(model, tokens[:3])[2, :64], atol=1e-4
    )


def test_a_rollback_beyond_what_is_held_does_nothing() -> None:
    cached = session(family("llama"))
    cached.forward([1, 2, 3], 1)
    cached.rollback(7)
    assert cached.num_tokens == 3


def test_a_long_prompt_is_read_in_blocks() -> None:
    block = HFDecoder.prefill_block
    model = tiny_neox(0, context=2 * block + 100)
    tokens = [i % 64 for i in range(2 * block + 40)]
    logits = session(model).forward(tokens, 3)
    assert torch.allclose(logits, plain(model, tokens)[-3:, :64], atol=1e-4)


def test_padded_rows_are_cut_off() -> None:
    # pythia#68, Qwen: rows beyond the tokenizer's ids must not be drawn.
    cached = Session(HFDecoder(tiny_neox(0), "m"), Role.TARGET, 257)
    assert cached.forward([1, 2], 1).shape == (1, 257)


def test_bytes_are_those_of_the_entries_held() -> None:
    cached = session(family("llama"))
    cached.forward(list(range(10)), 1)
    # 2 layers, keys and values, 2 heads of 8, float32
    assert cached.cache_size().bytes == 2 * 2 * 2 * 8 * 4 * 10
    cached.rollback(4)
    assert cached.cache_size().bytes == 2 * 2 * 2 * 8 * 4 * 4


def test_asking_for_logits_of_cached_tokens_is_a_fault() -> None:
    cached = session(family("llama"))
    cached.forward([1, 2, 3], 1)
    with pytest.raises(AssertionError):
        cached.forward([1, 2, 3], 1)


# Presses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt_neox", "llama", "qwen2", "opt", "gpt2"])
def test_dropped_entries_are_as_masked_ones(name: str) -> None:
    # transformers#47597: a compressed cache with the old positions and mask goes wrong silently.
    model = family(name)
    decoder = HFDecoder(model, "m")
    its_plan = CompressionPlan(
        press=PRESSES["knorm"], interval=6, num_sinks=2, num_recent=3
    )  # fmt: skip
    decoder.check_press(its_plan.press, in_cache=False)
    pressed = Session(decoder, Role.TARGET, 64, plan=its_plan)
    tokens = torch.randint(0, 64, (34,), generator=torch.Generator().manual_seed(1)).tolist()
    kept: dict[int, list[torch.Tensor]] = {}

    def note(done: int) -> None:
        kept[done] = [pressed.cache.tokens(layer) for layer in range(2)]

    logits = read(pressed, tokens, 20, after=note)
    assert sorted(kept) == [20, 26, 32]
    expected = masked(model, tokens, kept)[19:, :64]
    assert torch.allclose(logits, expected, atol=2e-4)
    assert pressed.cache_size().tokens == 16 + 2
    assert pressed.cache_size().allocated >= pressed.cache_size().bytes


def masked(
    model: PreTrainedModel, tokens: list[int], kept: dict[int, list[torch.Tensor]]
) -> torch.Tensor:
    """One pass without a cache; each layer and head sees what its compressions left."""
    count = len(tokens)
    masks = []
    for layer in range(2):
        heads = len(kept[20][layer])
        mask = torch.full((1, heads, count, count), float("-inf"))
        for i in range(count):
            done = max((d for d in kept if d <= i), default=0)
            mask[:, :, i, done : i + 1] = 0.0
            if done:
                for head in range(heads):
                    mask[0, head, i, kept[done][layer][head]] = 0.0
        queries = model.config.num_attention_heads
        masks.append(mask.repeat_interleave(queries // heads, 1))
    layers = iter(masks)
    right = torch.nn.functional.scaled_dot_product_attention

    def attend(query, key, value, **kwargs):  # type: ignore[no-untyped-def]
        kwargs |= {"attn_mask": next(layers), "is_causal": False}
        return right(query, key, value, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "scaled_dot_product_attention", attend)
        logits = plain(model, tokens)
    assert next(layers, None) is None, "every layer used its own mask"
    return logits


@pytest.mark.parametrize(
    ("name", "press", "in_cache", "words"),
    [
        ("bloom", "knorm", False, "bloom.*counts entries.*gpt2, opt"),
        ("mistral", "knorm", False, "without sliding windows"),
        ("gpt2", "snapkv", False, "snapkv needs queries.*GPT-NeoX, Llama"),
        ("gpt2", "streaming", True, "in_cache can't.*GPT-NeoX, Llama"),
    ],
)
def test_a_press_that_would_go_wrong_is_refused(
    name: str, press: str, in_cache: bool, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        HFDecoder(family(name), "m").check_press(PRESSES[press], in_cache)
