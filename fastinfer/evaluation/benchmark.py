"""Paired, warmed-up runs: one after another, the order alternated, medians and quartiles.

Every contender gets the same prompt ids, the same number of new tokens and the same sampling. A
round runs all of them once on one prompt. The order turns round from prompt to prompt and from
repeat to repeat, so that a machine that slows down or speeds up favours nobody. Ratios are taken
within a round, then their median.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastinfer.config import ConfigError
from fastinfer.evaluation.contenders import Contender, Measured, Task
from fastinfer.evaluation.environment import environment, with_memory
from fastinfer.evaluation.names import BASELINE
from fastinfer.events import Role
from fastinfer.info import EngineInfo
from fastinfer.metrics import RunStats, StageCounts

WARM_UP_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run."""

    prompts: Mapping[str, tuple[int, ...]]  # name -> token ids
    max_new_tokens: int = 128
    repeats: int = 5
    temperature: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ConfigError("repeats", f"must be 1 or more, not {self.repeats}")
        if self.max_new_tokens < 2:
            raise ConfigError("max_new_tokens", "must be 2 or more: TPOT needs two tokens")

    def task(self, name: str, repeat: int) -> Task:
        """The same for every contender of a round; each repeat has a seed of its own."""
        return Task(
            prompt_ids=self.prompts[name],
            max_new_tokens=self.max_new_tokens,
            temperature=self.temperature,
            seed=self.seed + repeat,
        )

    def rounds(self) -> list[tuple[int, str]]:
        """(repeat, prompt) of each round, in order."""
        return [(repeat, name) for repeat in range(self.repeats) for name in self.prompts]

    def is_forward(self, index: int) -> bool:
        """Whether round `index` runs the contenders in the order given, or the other way round."""
        repeat, prompt = divmod(index, len(self.prompts))
        return (repeat + prompt) % 2 == 0


Runs = dict[str, list[Measured]]  # contender -> its runs, one per round


def run_plan(
    plan: Plan, contenders: Sequence[Contender], progress: Callable[[int, int], None]
) -> Runs:
    """All rounds; `progress(done, total)` counts single runs, warm-up aside."""
    runs: Runs = {contender.name: [] for contender in contenders}
    total = len(plan.rounds()) * len(contenders)
    for done, (name, measured) in enumerate(single_runs(plan, contenders), start=1):
        runs[name].append(measured)
        progress(done, total)
    return runs


def single_runs(
    plan: Plan, contenders: Sequence[Contender]
) -> Generator[tuple[str, Measured], None, None]:
    """The runs one by one, each with its contender's name, after a warm-up of all contenders."""
    rounds = plan.rounds()
    warm_up = dataclasses.replace(
        plan.task(rounds[0][1], 0), max_new_tokens=min(WARM_UP_TOKENS, plan.max_new_tokens)
    )
    for contender in contenders:
        contender.run(warm_up)
    for index, (repeat, name) in enumerate(rounds):
        for contender in contenders if plan.is_forward(index) else reversed(contenders):
            yield contender.name, _one_run(contender, plan.task(name, repeat))


def _one_run(contender: Contender, task: Task) -> Measured:
    measured, memory_bytes = with_memory(functools.partial(contender.run, task))
    assert len(measured.token_ids) == task.max_new_tokens, f"{contender.name} ended early"
    return dataclasses.replace(measured, memory_bytes=memory_bytes)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    if len(values) == 1:
        quartiles = [values[0]] * 3
    else:
        quartiles = statistics.quantiles(values, n=4, method="inclusive")
    return {"q1": quartiles[0], "median": quartiles[1], "q3": quartiles[2]}


def header(
    info: EngineInfo,
    plan: Plan,
    *,
    methods: Sequence[str],
    peers: Sequence[str],
    prompt_tokens: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """What a document says before its results: the machine, the models, and what was asked for."""
    return {
        "kind": "fastinfer-bench",
        "version": 1,
        "environment": environment(),
        "preset": info.preset,
        "models": {role.value: name for role, name in info.models.items()},
        "dtype": info.dtype,
        "device": info.device,
        "plan": {
            "methods": list(methods),
            "peers": list(peers),
            "prompts": {name: len(ids) for name, ids in plan.prompts.items()},
            "prompt_tokens": prompt_tokens,
            "max_new_tokens": plan.max_new_tokens,
            "repeats": plan.repeats,
            "temperature": plan.temperature,
            "seed": plan.seed,
            "options": dict(options),
        },
    }


def without_baseline(methods: Sequence[str]) -> list[str]:
    """What to note where there is nothing to take ratios to."""
    return [] if BASELINE in methods else [f"no ratios: {BASELINE} is not among the methods"]


def summarise(plan: Plan, runs: Runs) -> dict[str, Any]:
    """The result of each contender, JSON-ready."""
    baseline = runs.get(BASELINE)
    return {name: _summary(plan, measured, baseline) for name, measured in runs.items()}


def _summary(
    plan: Plan, measured: list[Measured], baseline: list[Measured] | None
) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ttft_ms": spread([m.ttft_ms for m in measured]),
        "tpot_ms": spread([m.tpot_ms for m in measured]),
    }
    result["tokens_per_second"] = 1000.0 / result["tpot_ms"]["median"]
    memory = [m.memory_bytes for m in measured if m.memory_bytes is not None]
    result["memory_bytes"] = max(memory) if memory else None
    if baseline is not None:
        result |= _against(plan, measured, baseline)
    stats = [m.stats for m in measured if m.stats is not None]
    if stats:
        result |= speculation(stats) | held(stats)
    if stats and baseline is not None:
        result |= costs(stats, statistics.median(b.tpot_ms for b in baseline))
    result["runs"] = [
        {"repeat": repeat, "prompt": name, "ttft_ms": m.ttft_ms, "tpot_ms": m.tpot_ms}
        for (repeat, name), m in zip(plan.rounds(), measured, strict=True)
    ]
    return result


def _against(plan: Plan, measured: list[Measured], baseline: list[Measured]) -> dict[str, Any]:
    """Ratios to the baseline, round by round; greedy text token by token."""
    pairs = list(zip(measured, baseline, strict=True))
    ratios = [m.tpot_ms / b.tpot_ms for m, b in pairs]
    result: dict[str, Any] = {
        "tpot_ratio_to_autoregressive": spread(ratios),
        "tpot_ratio_by_prompt": {
            prompt: spread(
                [r for r, (_, name) in zip(ratios, plan.rounds(), strict=True) if name == prompt]
            )
            for prompt in plan.prompts
        },
        "achieved_speedup": 1.0 / statistics.median(ratios),
    }
    if plan.temperature == 0:
        differences = [first_difference(m.token_ids, b.token_ids) for m, b in pairs]
        result["greedy_equal_runs"] = differences.count(None)
        result["greedy_first_difference"] = differences
    return result


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Where two texts part, or None where they are the same."""
    if len(a) == len(b):
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def speculation(stats: Sequence[RunStats]) -> dict[str, Any]:
    """Acceptance and costs over all runs of one method."""
    stages: dict[Role, StageCounts] = {}
    for run in stats:
        for role, counts in run.stages.items():
            stages.setdefault(role, StageCounts()).merge(counts)
    tokens = sum(run.num_tokens - run.first_burst for run in stats)
    passes = sum(run.num_rounds for run in stats)
    return {
        "mean_accepted_length": tokens / passes if passes else None,
        "stages": {role.value: counts.to_mapping() for role, counts in stages.items()},
        "draft_share": _share(stats),
    }


def held(stats: Sequence[RunStats]) -> dict[str, Any]:
    """Whether the law of the output is the target's, and the bytes of KV entries at a run's end."""
    last = [run.cache_bytes for run in stats]
    return {
        "lossless": all(run.started is None or run.started.lossless for run in stats),
        "kv_bytes": {
            role.value: statistics.median(each[role] for each in last if role in each)
            for role in Role
            if any(role in each for each in last)
        },
        "compress_ms": statistics.median(run.compress_ms for run in stats),
    }


def costs(stats: Sequence[RunStats], plain_ms: float) -> dict[str, Any]:
    """c, v(gamma), and the speed-up that they and the acceptance predict (arXiv:2211.17192).

    c is the draft's time per token and v(gamma) the time to verify gamma tokens, both in plain
    steps of the target. With a_j the acceptance at position j, a block of g tokens commits
    1 + a_1 + a_1 a_2 + ... tokens on average and takes g c + v(g).
    """
    blocks: dict[int, list[tuple[float, float]]] = {}
    accepted = StageCounts()
    for run in stats:
        for size, times in run.blocks.items():
            blocks.setdefault(size, []).extend(times)
        if Role.TARGET in run.stages:
            accepted.merge(run.stages[Role.TARGET])
    drafted = sum(size * len(times) for size, times in blocks.items())
    if not drafted:
        return {}
    c = sum(draft for times in blocks.values() for draft, _ in times) / drafted / plain_ms
    v = {
        size: statistics.median(ms for _, ms in times) / plain_ms for size, times in blocks.items()
    }
    committed = spent = 0.0
    for size, times in blocks.items():
        committed += len(times) * _expected(accepted.acceptance_by_position[:size])
        spent += len(times) * (size * c + v[size])
    return {
        "c": c,
        "v": {str(size): v[size] for size in sorted(v)},
        "rounds_by_block": {str(size): len(blocks[size]) for size in sorted(blocks)},
        "predicted_speedup": committed / spent,
    }


def _expected(acceptances: Sequence[float]) -> float:
    """Tokens that a block commits on average, the target's own included."""
    total = reached = 1.0
    for a in acceptances:
        reached *= a
        total += reached
    return total


def _share(stats: Sequence[RunStats]) -> float | None:
    """Drafting's share of the time in rounds."""
    draft = sum(run.draft_ms for run in stats)
    total = draft + sum(run.verify_ms for run in stats)
    return draft / total if total else None
