"""Writes nano's model card: `python -m fastinfer.training.card --heldout FOLDER`.

Measures acceptance on the first 500 words of every held-out text, and puts it beside what training
reported in `training.json`. Every figure in the card comes from one of the two.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.events import Role
from fastinfer.metrics import RunStats, StageCounts
from fastinfer.training.corpus import corpus_files
from fastinfer.training.recipe import VOCAB_SIZE

WORDS = 500
NEW_TOKENS = 64
TEMPERATURE = 0.8
GAMMA = 4

FRONT = """---
license: apache-2.0
language: en
library_name: transformers
tags: [gpt_neox, speculative-decoding]
---

# nano: three small models that share a tokenizer

For fastinfer's offline demo, its tests and its benchmarks: a target, an intermediate and a draft
of Pythia's architecture (GPT-NeoX: parallel residual, 25% rotary; embeddings tied). They write
English in the manner of old novels, and mean nothing by it.

- Data: {corpus_tokens:,} tokens of 247 English books in the public domain (the collection
  mlschmitt/classic-books-markdown, markup removed). None of the text is in this repository.
- Licence of the weights: Apache-2.0, as the project.
- Tokenizer: byte-level BPE, {vocab:,} entries, id 0 ends a text. Context: 2,048 tokens.
- Training: target from the text (Muon and AdamW); intermediate and draft from the target's law
  (0.8) and the text (0.2); last the draft alone from the target's law, to be accepted by it (total
  variation at temperature 0.8 beside cross-entropy). Windows of 256 tokens, then of 2,048; half of
  the long ones have passages that come twice.
  Seed {seed}, torch {torch}, {device}, {dtype}.
"""


def measure(engine: Engine, texts: Sequence[str], method: str) -> RunStats:
    """One fold over the runs of all texts. Greedy parts aside, nothing here depends on speed."""
    total = RunStats()
    for seed, text in enumerate(texts):
        config = DecodeConfig.from_mapping(
            {
                "method": method, "temperature": TEMPERATURE, "gamma": GAMMA, "seed": seed,
                "gamma_policy": "constant", "max_new_tokens": NEW_TOKENS, "ignore_eos": True,
            }
        )  # fmt: skip
        stats = engine.generate(text, config).stats
        total.num_tokens += stats.num_tokens
        total.first_burst += stats.first_burst
        total.num_rounds += stats.num_rounds
        for role, counts in stats.stages.items():
            total.stages.setdefault(role, StageCounts()).merge(counts)
    return total


def first_words(path: Path) -> str:
    """The first `WORDS` words of a text, its spacing kept."""
    words = path.read_text(encoding="utf-8").split(" ")
    return " ".join(words[:WORDS])


def tokens_seen(report: dict[str, Any], role: str) -> int:
    """How many tokens a model learned from, in all of its stages."""
    stages = {"target": ("target",), "intermediate": ("students",), "draft": ("students", "draft")}
    return sum(report["tokens_seen"][stage] for stage in stages[role])


def card(report: dict[str, Any], measured: dict[str, RunStats], num_texts: int, dtype: str) -> str:
    """The page, from figures."""
    names = ("corpus_tokens", "seed", "torch", "device", "dtype")
    lines = [
        FRONT.format(vocab=VOCAB_SIZE, **{name: report[name] for name in names}),
        "## Sizes and held-out loss",
        "",
        "Nats per token on unseen books, by how many tokens stand before it: the same text at each "
        "depth, in windows of 2,048.",
        "",
    ]
    roles = list(report["parameters"])
    edges = list(report["heldout_loss"][roles[0]]["by_position"])
    lines += [
        "| model | parameters | tokens seen | loss | "
        + " | ".join(f"at {e}" for e in edges)
        + " |",
        "| --- " * (4 + len(edges)) + "|",
    ]
    for role in roles:
        seen = tokens_seen(report, role)
        loss = report["heldout_loss"][role]
        by_position = " | ".join(f"{loss['by_position'][e]:.3f}" for e in edges)
        size = report["parameters"][role]
        lines.append(f"| {role} | {size:,} | {seen:,} | {loss['mean']:.3f} | {by_position} |")
    lines += [
        "",
        "## Acceptance",
        "",
        f"The first {WORDS} words of each of {num_texts} unseen books, {NEW_TOKENS} new tokens "
        f"each, temperature {TEMPERATURE}, constant gamma {GAMMA}, residual rule, {dtype} on a "
        "CPU; one seed per book. Acceptance is accepted / tested; mean accepted length counts the "
        "target's own token.",
        "",
        "| method | mean accepted length | target's acceptance | intermediate's acceptance |",
        "| --- | --- | --- | --- |",
    ]
    for method, stats in measured.items():
        inner = stats.stages.get(Role.INTERMEDIATE)
        lines.append(
            f"| {method} | {stats.mean_accepted_length:.2f} | "
            f"{stats.stages[Role.TARGET].acceptance:.3f} | "
            f"{f'{inner.acceptance:.3f}' if inner else '-'} |"
        )
    lines += [
        "",
        "## Train them again",
        "",
        "```",
        "python -m fastinfer.training.nano --corpus FILE_OR_FOLDER --heldout FOLDER \\",
        f"    --target-tokens {report['tokens_seen']['target']} "
        f"--student-tokens {report['tokens_seen']['students']} "
        f"--draft-tokens {report['tokens_seen']['draft']} --seed {report['seed']}",
        "python -m fastinfer.training.card --heldout FOLDER",
        "```",
        "",
        "A run that was stopped goes on from its last checkpoint when the same command is given.",
        *(("", report["notes"]) if "notes" in report else ()),
        "",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser("python -m fastinfer.training.card", description=__doc__)
    parser.add_argument("--heldout", type=Path, required=True, help="file or folder of unseen text")
    parser.add_argument("--models", type=Path, default=Path("assets/models/nano"))
    args = parser.parse_args(argv)
    folder: Path = args.models
    target, intermediate, draft = (
        str(folder / role.value) for role in (Role.TARGET, Role.INTERMEDIATE, Role.DRAFT)
    )
    engine = load(target=target, intermediate=intermediate, draft=draft)
    texts = [first_words(path) for path in corpus_files(args.heldout)]
    measured = {method: measure(engine, texts, method) for method in ("speculative", "cascade")}
    report = json.loads((folder / "training.json").read_text())
    (folder / "README.md").write_text(card(report, measured, len(texts), engine.info.dtype))
    print((folder / "README.md").read_text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
