"""The command `ppl`: from a checked choice to figures on stdout and in files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.evaluation.corpora import read_corpus
from fastinfer.evaluation.environment import environment, peak_memory_bytes
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.page import make_folder
from fastinfer.evaluation.pareto import write_html, write_png
from fastinfer.evaluation.ppl_table import table
from fastinfer.evaluation.press_grid import Variant, report, run_grid
from fastinfer.evaluation.windows import Document, Window, coder_of, cut
from fastinfer.events import Role
from fastinfer.models.catalog import preset_named
from fastinfer.models.compression import plan_for
from fastinfer.models.loading import LoadedModels, load_models
from fastinfer.models.session import Session
from fastinfer.ppl_options import PplChoice
from fastinfer.reporting import say, write_files


def ppl(choice: PplChoice) -> int:
    """Measure, then say what was found: table to stderr, files, JSON as stdout's last line."""
    if choice.out is not None:
        make_folder(choice.out)
    documents = read_corpus(choice.corpus)
    models = _load(choice)
    windows, notes = cut(
        documents,
        coder_of(models.tokenizer),
        context=choice.context,
        stride=choice.stride,
        max_windows=choice.max_windows,
    )
    document = _measure(choice, models, windows, notes)
    document["corpus"] = _about(choice.corpus, documents)
    document["peak_memory_bytes"] = peak_memory_bytes()
    text = json.dumps(document)
    say(table(document))
    if choice.out is not None:
        write_files(document, choice.out, write_html, write_png)
    print(text, flush=True)
    return 0


def _load(choice: PplChoice) -> LoadedModels:
    """The one model that is measured, under the role of a target: nothing else is needed."""
    models = preset_named(choice.preset).models
    names = {role: model.source for role, model in models.items()}
    name = choice.target or names.get(choice.role)
    if name is None:
        raise ConfigError(
            "role", f"must be one of {', '.join(names)} with {choice.preset}, not {choice.role}"
        )
    return load_models(choice.preset, {Role.TARGET: name}, choice.dtype, choice.device)


def _measure(
    choice: PplChoice, models: LoadedModels, windows: list[Window], notes: list[str]
) -> dict[str, Any]:
    decoder = models.decoders[Role.TARGET]
    variants = [Variant(name=name, config=c) for name, c in choice.variants.items()]

    def new_model(config: DecodeConfig) -> Session:
        plan = plan_for(config, choice.role)
        if plan is not None:
            decoder.check_press(plan.press, plan.in_cache)
        return Session(decoder, choice.role, models.vocab_size, plan=plan)

    total = len(windows) * len(variants)
    with tqdm(total=total, unit="window", file=sys.stderr) as bar:
        runs, refused = run_grid(variants, windows, choice.interval, new_model, bar.update)
    return {
        "kind": "fastinfer-ppl",
        "version": 1,
        "environment": environment(),
        "preset": choice.preset if choice.target is None else "custom",
        "role": choice.role.value,
        "model": decoder.name,
        "dtype": str(decoder.dtype).removeprefix("torch."),
        "device": str(decoder.device),
        "plan": {
            "context": choice.context,
            "stride": choice.stride,
            "max_windows": choice.max_windows,
            "interval": choice.interval,
            "positions": choice.positions,
            "presses": [name for name in runs if name != UNCOMPRESSED],
            "num_sinks": choice.num_sinks,
            "num_recent": DecodeConfig().num_recent,
        },
        "notes": [*notes, *refused],
        "windows": [
            {"document": w.document, "tokens": len(w.ids) - w.first, "bytes": w.num_bytes}
            for w in windows
        ],
        "results": report(variants, runs),
    }


def _about(source: str, documents: list[Document]) -> dict[str, Any]:
    """The corpus by its last name only: a path is nobody's business."""
    return {
        "name": Path(source).name,
        "documents": [document.name for document in documents],
        "bytes": sum(len(document.text.encode()) for document in documents),
    }
