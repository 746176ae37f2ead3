"""The training loop: a target that learns from text, students that learn from it and from text."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from fastinfer.models.devices import choose_dtype
from fastinfer.training.corpus import Windows
from fastinfer.training.recipe import CONTEXT, Recipe, build_optimizers

Model = Any
Stream = np.ndarray[Any, np.dtype[np.uint16]]

DISTILL_SHARE = 0.8  # of KL; the rest is the text
DRAFT_TEMPERATURE = 0.8  # at which a draft learns to be accepted
ACCEPTANCE_WEIGHT = 10.0  # of the refused share, beside one of cross-entropy
CHECKPOINT_SECONDS = 120.0


@functools.cache
def compute_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware computes in it: elsewhere it takes several times as long."""
    return choose_dtype("auto", device)


def logits_of(model: Model, ids: Tensor) -> Tensor:
    """Logits [batch, length, vocab] in float32, the forward itself in `compute_dtype`."""
    half = compute_dtype(ids.device) == torch.bfloat16
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=half):
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
    return logits.float()


def text_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy in nats per token."""
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def mixed_labels(teacher: Tensor, labels: Tensor) -> Tensor:
    """What a student learns from: the teacher's law, mixed with the text's own next token.

    Cross-entropy against this mixture has the gradient of DISTILL_SHARE * KL(teacher || student)
    plus the rest times the text's loss, at the price of one softmax. The KL part raises sum(min(p,
    q)), which is a draft's acceptance.
    """
    mixture = teacher.softmax(-1).mul_(DISTILL_SHARE)
    rest = torch.full_like(mixture[..., :1], 1.0 - DISTILL_SHARE)
    return mixture.scatter_add_(-1, labels.unsqueeze(-1), rest)


def distillation_loss(logits: Tensor, mixture: Tensor) -> Tensor:
    """Cross-entropy against `mixed_labels`, in nats per token."""
    return functional.cross_entropy(logits.flatten(0, 1), mixture.flatten(0, 1))


def drafting_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """What makes a draft be accepted: logits of both [batch, length, vocab] -> a mean per token.

    The refused share 1 - sum(min(p, q)) at DRAFT_TEMPERATURE, which is the total variation distance
    (Corollary 3.6 of arXiv:2211.17192; as a loss: arXiv:2310.08461), and one part of cross-entropy
    against the teacher's law, whose gradient does not vanish where the two laws have little in
    common.
    """
    entropy = functional.cross_entropy(logits.flatten(0, 1), teacher.softmax(-1).flatten(0, 1))
    ours, theirs = ((values / DRAFT_TEMPERATURE).softmax(-1) for values in (logits, teacher))
    refused = 0.5 * (ours - theirs).abs().sum(-1).mean()
    return entropy + ACCEPTANCE_WEIGHT * refused


class Run:
    """One resumable run over `models`, all fed the same windows."""

    def __init__(
        self, name: str, models: dict[str, Model], recipe: Recipe, windows: Windows, folder: Path,
        device: str,
    ) -> None:  # fmt: skip
        self.name = name
        self.models = models
        self.recipe = recipe
        self.windows = windows
        self.path = folder / f"{name}.pt"
        self.device = device
        self.step = 0
        self.optimizers = {
            role: build_optimizers(model.to(device), recipe) for role, model in models.items()
        }
        if self.path.exists():
            self._load()

    def train(self, losses: Callable[[Tensor, Tensor], dict[str, Tensor]]) -> None:
        """Run to the end; `losses(ids, labels)` gives one loss per model."""
        saved = time.monotonic()
        bar = tqdm(
            total=self.recipe.num_steps * self.recipe.batch_tokens,
            initial=self.step * self.recipe.batch_tokens,
            unit="token", unit_scale=True, desc=self.name, mininterval=5.0,
        )  # fmt: skip
        for model in self.models.values():
            model.train()
        while self.step < self.recipe.num_steps:
            length, first = self.recipe.window_at(self.step)
            count = self.recipe.batch_tokens // length
            repeating = self.recipe.repeating if length == CONTEXT else 0.0
            block = self.windows.batch(first, count, length, repeating).to(self.device)
            values = losses(block[:, :-1], block[:, 1:])
            torch.stack(list(values.values())).sum().backward()  # type: ignore[no-untyped-call]
            self._update()
            self.step += 1
            bar.update(self.recipe.batch_tokens)
            if self.step % 10 == 0:
                bar.set_postfix({role: f"{loss.item():.3f}" for role, loss in values.items()})
            if time.monotonic() - saved > CHECKPOINT_SECONDS:
                self._save()
                saved = time.monotonic()
        bar.close()
        self._save()

    def _update(self) -> None:
        factor = self.recipe.rate_at(self.step)
        for role, optimizers in self.optimizers.items():
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group.setdefault("full_lr", group["lr"])
                    group["lr"] = factor * group["full_lr"]
                optimizer.step()
            self.models[role].zero_grad(set_to_none=True)

    def _save(self) -> None:
        state = {
            "step": self.step,
            "models": {role: model.state_dict() for role, model in self.models.items()},
            "optimizers": {
                role: [o.state_dict() for o in optimizers]
                for role, optimizers in self.optimizers.items()
            },
        }
        partial = self.path.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self.path)

    def _load(self) -> None:
        state = torch.load(self.path, map_location=self.device, weights_only=True)
        self.step = state["step"]
        for role, model in self.models.items():
            model.load_state_dict(state["models"][role])
            for optimizer, saved in zip(
                self.optimizers[role], state["optimizers"][role], strict=True
            ):
                optimizer.load_state_dict(saved)
