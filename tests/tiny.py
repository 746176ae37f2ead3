"""Tiny random transformers models and a byte-level tokenizer, in memory or in a folder."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from fastinfer.engine import Engine
from fastinfer.events import Role
from fastinfer.models.hf_model import HFDecoder
from fastinfer.models.loading import LoadedModels

END = "<|endoftext|>"


def byte_tokenizer(extra: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """Id 0 ends a text; then one id per byte, then `extra`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate([END, *alphabet, *extra])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END)


def tiny_neox(seed: int, hidden: int = 32, layers: int = 2, context: int = 256) -> PreTrainedModel:
    """A random GPT-NeoX with a few padded rows beyond the tokenizer's 257 ids."""
    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=264, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=2 * hidden, max_position_embeddings=context, bos_token_id=0,
        eos_token_id=0, initializer_range=0.4,
    )  # fmt: skip
    return GPTNeoXForCausalLM(config).eval()


def tiny_models(context: int = 256) -> LoadedModels:
    """Three random models of different sizes that share a tokenizer."""
    sizes = {Role.DRAFT: (16, 1), Role.INTERMEDIATE: (16, 2), Role.TARGET: (32, 2)}
    decoders = {
        role: HFDecoder(tiny_neox(seed, *size, context), f"tiny-{role.value}")
        for seed, (role, size) in enumerate(sizes.items(), start=1)
    }
    return LoadedModels(
        preset="tiny", tokenizer=byte_tokenizer(), decoders=dict(decoders), vocab_size=257,
        end_ids=frozenset([0]),
    )  # fmt: skip


def tiny_engine(context: int = 256) -> Engine:
    """An engine over `tiny_models`."""
    return Engine(tiny_models(context))


def save_tiny(folder: Path, seed: int, extra: tuple[str, ...] = ()) -> str:
    """A model folder as transformers writes it."""
    tiny_neox(seed).save_pretrained(folder)
    byte_tokenizer(extra).save_pretrained(folder)
    return str(folder)
