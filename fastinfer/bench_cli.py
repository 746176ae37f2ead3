"""The command `bench`: from a checked choice to figures on stdout and in files."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from tqdm import tqdm

from fastinfer.bench_options import BenchChoice
from fastinfer.engine import Engine
from fastinfer.evaluation.benchmark import Plan, header, run_plan, summarise, without_baseline
from fastinfer.evaluation.contenders import our_contenders
from fastinfer.evaluation.environment import peak_memory_bytes
from fastinfer.evaluation.page import make_folder
from fastinfer.evaluation.peers import Weights, peer_contenders
from fastinfer.evaluation.prompts import first_tokens, load_prompts
from fastinfer.evaluation.report import write_html, write_png
from fastinfer.evaluation.table import table
from fastinfer.events import Role
from fastinfer.models.loading import LoadedModels, load_models
from fastinfer.reporting import say, write_files


def bench(choice: BenchChoice) -> int:
    """Measure, then say what was found: table to stderr, files, JSON as stdout's last line."""
    prompts = load_prompts(choice.prompts)
    if choice.out is not None:
        make_folder(choice.out)  # before an hour of measuring, not after
    models = load_models(choice.preset, choice.overrides, choice.dtype, choice.device)
    engine = Engine(models)
    ids, notes = first_tokens(prompts, engine.encode, choice.prompt_tokens)
    notes += without_baseline(choice.methods)
    plan = Plan(
        prompts=ids,
        max_new_tokens=choice.max_new_tokens,
        repeats=choice.repeats,
        temperature=choice.temperature,
        seed=choice.seed,
    )
    document = {
        **header(
            engine.info,
            plan,
            methods=choice.methods,
            peers=choice.peers,
            prompt_tokens=choice.prompt_tokens,
            options=choice.options,
        ),
        "notes": notes,
        "results": _measure(choice, engine, models, plan),
        "peak_memory_bytes": peak_memory_bytes(),
    }
    text = json.dumps(document)
    say(table(document))
    if choice.out is not None:
        write_files(document, choice.out, write_html, write_png)
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
