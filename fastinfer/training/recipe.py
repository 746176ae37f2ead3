"""How the nano models are trained: shapes, schedule, optimisers; plain data, pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

CONTEXT = 2048
VOCAB_SIZE = 4096
HEAD_DIM = 64


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Width and depth of one model."""

    hidden: int
    layers: int


SHAPES = {
    "target": Shape(hidden=384, layers=8),
    "intermediate": Shape(hidden=256, layers=4),
    "draft": Shape(hidden=128, layers=2),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training run: its length, its windows (in tokens) and its rates.

    More than half of it sees windows of 2,048 tokens: short windows are cheap on a CPU, but a model
    gains from a long context only after many long windows (after one fifth its loss was level from
    512 tokens on). Half of the long ones repeat passages of their own, which teaches looking back.
    """

    tokens: int
    batch_tokens: int = 4096
    windows: tuple[tuple[float, int], ...] = ((0.45, 256), (1.0, CONTEXT))
    repeating: float = 0.5  # share of the long windows
    flat_until: float = 0.5
    warmup_steps: int = 20
    final_rate: float = 0.03
    muon_rate: float = 0.02
    adamw_rate: float = 3e-3
    seed: int = 1

    @property
    def num_steps(self) -> int:
        """Optimiser steps of the whole run."""
        return max(1, self.tokens // self.batch_tokens)

    def window_at(self, step: int) -> tuple[int, int]:
        """Window length at `step`, and how many windows of that length came before it."""
        start = 0
        for share, length in self.windows:
            end = round(share * self.num_steps)
            if step < end or share == self.windows[-1][0]:
                return length, (step - start) * (self.batch_tokens // length)
            start = end
        raise AssertionError("the last share covers every step")

    def rate_at(self, step: int) -> float:
        """Factor on both learning rates: warm-up, flat, then a straight line down."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        progress = step / self.num_steps
        if progress < self.flat_until:
            return 1.0
        left = (1.0 - progress) / (1.0 - self.flat_until)
        return self.final_rate + (1.0 - self.final_rate) * left


def build_model(shape: Shape, end_of_text: int, seed: int) -> GPTNeoXForCausalLM:
    """A fresh GPT-NeoX of `shape`: Pythia's architecture, with the embeddings tied to save room."""
    torch.manual_seed(seed)
    config = GPTNeoXConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.hidden // HEAD_DIM,
        intermediate_size=4 * shape.hidden,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
    )
    return GPTNeoXForCausalLM(config)


def build_optimizers(model: nn.Module, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon (arXiv:2502.16982) for the hidden matrices, AdamW for embeddings, norms and biases."""
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and ".layers." in name]
    chosen = {id(p) for p in hidden}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(hidden, lr=recipe.muon_rate, weight_decay=0.01, momentum=0.95),
        torch.optim.AdamW(rest, lr=recipe.adamw_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
