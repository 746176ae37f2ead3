"""Trains the bundled models: `python -m fastinfer.training.nano --corpus PATH`.

Three GPT-NeoX models and one tokenizer from plain text. The target learns from the text; the
intermediate and the draft then learn from the target's logits and from the text, in one pass, which
is what makes them good drafts. Last, the draft alone learns to be accepted. Everything is
resumable: run the same command again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from fastinfer.config import ConfigError
from fastinfer.training.corpus import (
    END_OF_TEXT,
    Windows,
    encode,
    end_of_text,
    read_documents,
    train_tokenizer,
)
from fastinfer.training.heldout import MIN_TOKENS, by_position, heldout_losses
from fastinfer.training.recipe import CONTEXT, SHAPES, VOCAB_SIZE, Recipe, build_model
from fastinfer.training.run import (
    Model,
    Run,
    Stream,
    compute_dtype,
    distillation_loss,
    drafting_loss,
    logits_of,
    mixed_labels,
    text_loss,
)

STUDENTS = ("intermediate", "draft")
SHARD = "8MB"
STRETCHES = 192  # of unseen text, for the reported loss


def prepare(corpus: Path, heldout: Path | None, work: Path) -> tuple[Tokenizer, Stream, Stream]:
    """Tokenizer, training ids and held-out ids; kept in `work` for the next call.

    Without a held-out path, the last document of the corpus is held out.
    """
    files = [work / name for name in ("tokenizer.json", "train.npy", "heldout.npy")]
    if not all(file.exists() for file in files):
        documents = list(read_documents(corpus))
        unseen: Iterator[str]
        if heldout is not None:
            unseen = read_documents(heldout)
        elif len(documents) > 1:
            unseen = iter([documents.pop()])
        else:
            cut = len(documents[0]) * 9 // 10
            documents, unseen = [documents[0][:cut]], iter([documents[0][cut:]])
        print("tokenizer …", file=sys.stderr)
        tokenizer = train_tokenizer(iter(documents), VOCAB_SIZE)
        tokenizer.save(str(files[0]))
        print("encoding …", file=sys.stderr)
        np.save(files[1], encode(tokenizer, iter(documents)))
        np.save(files[2], encode(tokenizer, unseen))
    streams = [np.load(file, mmap_mode="r") for file in files[1:]]
    for name, stream, least in zip(
        ("corpus", "heldout"), streams, (CONTEXT + 1, MIN_TOKENS), strict=True
    ):
        if len(stream) < least:
            raise ConfigError(name, f"needs at least {least} tokens, has {len(stream)}")
    return Tokenizer.from_file(str(files[0])), streams[0], streams[1]


def train_target(windows: Windows, recipe: Recipe, end: int, work: Path, device: str) -> Model:
    """The big one, from text alone."""
    model = build_model(SHAPES["target"], end, recipe.seed)
    run = Run("target", {"target": model}, recipe, windows, work, device)
    run.train(lambda ids, labels: {"target": text_loss(logits_of(model, ids), labels)})
    return model


def train_students(
    teacher: Model, windows: Windows, recipe: Recipe, end: int, work: Path, device: str
) -> dict[str, Model]:
    """The two small ones, from the big one's logits and from the text."""
    teacher.eval().requires_grad_(False)
    models = {
        role: build_model(SHAPES[role], end, recipe.seed + index)
        for index, role in enumerate(STUDENTS, start=1)
    }

    def losses(ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            mixture = mixed_labels(logits_of(teacher, ids), labels)
        return {
            role: distillation_loss(logits_of(model, ids), mixture)
            for role, model in models.items()
        }

    Run("students", models, recipe, windows, work, device).train(losses)
    return models


def train_draft(
    teacher: Model, draft: Model, windows: Windows, recipe: Recipe, work: Path, device: str
) -> None:
    """The smallest, once more and in place: from the big one's law alone, to be accepted by it."""

    def losses(ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            wanted = logits_of(teacher, ids)
        return {"draft": drafting_loss(logits_of(draft, ids), wanted)}

    Run("draft", {"draft": draft}, recipe, windows, work, device).train(losses)


def export(model: Model, tokenizer: Tokenizer, folder: Path) -> None:
    """Write a model as transformers reads it: bfloat16 safetensors shards and the tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors*"):
        old.unlink()
    model.to("cpu", torch.bfloat16).save_pretrained(folder, max_shard_size=SHARD)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        unk_token=END_OF_TEXT,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser("python -m fastinfer.training.nano", description=__doc__)
    p.add_argument("--corpus", type=Path, required=True, help="text file or folder (.txt, .xz)")
    p.add_argument("--heldout", type=Path, help="unseen text for the reported loss")
    p.add_argument("--out", type=Path, default=Path("assets/models/nano"))
    p.add_argument("--work", type=Path, default=Path("build/nano"), help="checkpoints")
    p.add_argument("--target-tokens", type=int, default=9_500_000)
    p.add_argument("--student-tokens", type=int, default=4_800_000)
    p.add_argument("--draft-tokens", type=int, default=14_000_000, help="of the draft alone, last")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--threads", type=int, help="CPU threads; all by default")
    return p


def main(argv: list[str] | None = None) -> int:
    """Train, evaluate, export; prints the held-out losses and writes `training.json`."""
    args = parser().parse_args(argv)
    if args.threads:
        torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    try:
        tokenizer, stream, unseen = prepare(args.corpus, args.heldout, args.work)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    end = end_of_text(tokenizer)
    windows = Windows(stream, args.seed)
    recipe = Recipe(tokens=args.target_tokens, seed=args.seed)
    target = train_target(windows, recipe, end, args.work, args.device)
    students = train_students(
        target, windows, Recipe(tokens=args.student_tokens, seed=args.seed + 1), end, args.work,
        args.device,
    )  # fmt: skip
    train_draft(
        target, students["draft"], Windows(stream, args.seed + 2),
        Recipe(tokens=args.draft_tokens, seed=args.seed + 2), args.work, args.device,
    )  # fmt: skip
    report: dict[str, object] = {
        "seed": args.seed,
        "corpus_tokens": len(stream),
        "heldout_tokens": len(unseen),
        "tokens_seen": {
            "target": args.target_tokens,
            "students": args.student_tokens,
            "draft": args.draft_tokens,
        },
        "torch": torch.__version__,
        "device": args.device,
        "dtype": {torch.bfloat16: "bfloat16 autocast", torch.float32: "float32"}[
            compute_dtype(torch.device(args.device))
        ],
        "heldout_loss": {},
        "parameters": {},
    }
    losses_by_role: dict[str, object] = {}
    for role, model in {"target": target, **students}.items():
        losses = heldout_losses(model, unseen, STRETCHES, args.device)
        losses_by_role[role] = {
            "mean": round(losses.mean().item(), 4), "by_position": by_position(losses)
        }  # fmt: skip
        export(model, tokenizer, args.out / role)
    report["heldout_loss"] = losses_by_role
    report["parameters"] = {
        role: sum(p.numel() for p in model.parameters())
        for role, model in {"target": target, **students}.items()
    }
    text = json.dumps(report, indent=2)
    (args.out / "training.json").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
