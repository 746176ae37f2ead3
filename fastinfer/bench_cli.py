"""The command `bench`: from a checked choice to figures on stdout and in files."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

from tqdm import tqdm

from fastinfer.bench_options import BenchChoice
from fastinfer.engine import Engine
from fastinfer.evaluation.benchmark import Plan, run_plan, summarise
from fastinfer.evaluation.contenders import our_contenders
from fastinfer.evaluation.environment import environment, peak_memory_bytes
from fastinfer.evaluation.names import BASELINE
from fastinfer.evaluation.page import make_folder
from fastinfer.evaluation.peers import Weights, peer_contenders
from fastinfer.evaluation.prompts import first_tokens, load_prompts
from fastinfer.evaluation.report import write_html, write_png
from fastinfer.evaluation.table import table
from fastinfer.events import Role
from fastinfer.models.loading import LoadedModels, load_models
from fastinfer.terminal import visible


def bench(choice: BenchChoice) -> int:
    """Measure, then say what was found: table to stderr, files, JSON as stdout's last line."""
    prompts = load_prompts(choice.prompts)
    if choice.out is not None:
        make_folder(choice.out)  # before an hour of measuring, not after
    models = load_models(choice.preset, choice.overrides, choice.dtype, choice.device)
    engine = Engine(models)
    ids, notes = first_tokens(prompts, engine.encode, choice.prompt_tokens)
    if BASELINE not in choice.methods:
        notes.append(f"no ratios: {BASELINE} is not among the methods")
    plan = Plan(
        prompts=ids,
        max_new_tokens=choice.max_new_tokens,
        repeats=choice.repeats,
        temperature=choice.temperature,
        seed=choice.seed,
    )
    document = {
        **_header(choice, engine, plan),
        "notes": notes,
        "results": _measure(choice, engine, models, plan),
        "peak_memory_bytes": peak_memory_bytes(),
    }
    text = json.dumps(document)
    _say(table(document))
    if choice.out is not None:
        _write(document, choice.out)
    print(text, flush=True)
    return 0


def _measure(
    choice: BenchChoice, engine: Engine, models: LoadedModels, plan: Plan
) -> dict[str, Any]:
    tasks = [plan.task(name, 0) for name in plan.prompts]
    target = models.decoders[Role.TARGET]
    weights = Weights(models.folders, target.dtype, target.device)
    longest = max(len(ids) for ids in plan.prompts.values()) + plan.max_new_tokens
    contenders = [
        *our_contenders(engine, choice.methods, choice.options, tasks),
        *peer_contenders(choice.peers, weights, longest),
    ]
    total = len(plan.rounds()) * len(contenders)
    with tqdm(total=total, unit="run", file=sys.stderr) as bar, warnings.catch_warnings():
        # Peers written for another transformers call it by old names, which still work.
        warnings.simplefilter("ignore", FutureWarning)
        runs = run_plan(plan, contenders, lambda done, _: bar.update(done - bar.n))
    return summarise(plan, runs)


def _header(choice: BenchChoice, engine: Engine, plan: Plan) -> dict[str, Any]:
    return {
        "kind": "fastinfer-bench",
        "version": 1,
        "environment": environment(),
        "preset": engine.info.preset,
        "models": {role.value: name for role, name in engine.info.models.items()},
        "dtype": engine.info.dtype,
        "device": engine.info.device,
        "plan": {
            "methods": list(choice.methods),
            "peers": list(choice.peers),
            "prompts": {name: len(ids) for name, ids in plan.prompts.items()},
            "prompt_tokens": choice.prompt_tokens,
            "max_new_tokens": plan.max_new_tokens,
            "repeats": plan.repeats,
            "temperature": plan.temperature,
            "seed": plan.seed,
            "options": choice.options,
        },
    }


def _write(document: dict[str, Any], folder: Path) -> None:
    pretty = json.dumps(document, indent=1)
    (folder / "result.json").write_text(pretty + "\n", encoding="utf-8")
    write_html(document, pretty, folder / "report.html")
    missing = write_png(document, folder / "report.png")
    if missing is not None:
        _say(missing)
    _say(f"written to {folder}")


def _say(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)
