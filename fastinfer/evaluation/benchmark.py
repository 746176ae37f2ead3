"""Paired, warmed-up runs: one after another, the order alternated, medians and quartiles.

Every contender gets the same prompt ids, the same number of new tokens and the same sampling. A round
runs all of them once on one prompt; the next round runs them in the opposite order, so that a machine
that slows down or speeds up favours nobody. Ratios are taken within a round, then their median.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastinfer.config import ConfigError
from fastinfer.evaluation.contenders import Contender, Measured, Task
from fastinfer.events import Role
from fastinfer.metrics import RunStats, StageCounts

WARM_UP_TOKENS = 8
BASELINE = "autoregressive"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run."""

    prompts: dict[str, tuple[int, ...]]  # name -> token ids
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


Runs = dict[str, list[Measured]]  # contender -> its runs, one per round


def run_plan(
    plan: Plan, contenders: Sequence[Contender], progress: Callable[[int, int], None]
) -> Runs:
    """All rounds; `progress(done, total)` counts single runs, warm-up aside."""
    runs: Runs = {contender.name: [] for contender in contenders}
    first = next(iter(plan.prompts))
    for contender in contenders:
        task = plan.task(first, 0)
        contender.run(
            Task(
                prompt_ids=task.prompt_ids, max_new_tokens=WARM_UP_TOKENS,
                temperature=task.temperature, seed=task.seed,
            )
        )  # fmt: skip
    total = plan.repeats * len(plan.prompts) * len(contenders)
    done = 0
    for repeat in range(plan.repeats):
        for index, name in enumerate(plan.prompts):
            forward = (repeat + index) % 2 == 0
            for contender in contenders if forward else reversed(contenders):
                runs[contender.name].append(contender.run(plan.task(name, repeat)))
                done += 1
                progress(done, total)
    return runs


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    if len(values) == 1:
        quartiles = [values[0]] * 3
    else:
        quartiles = statistics.quantiles(values, n=4, method="inclusive")
    return {"q1": quartiles[0], "median": quartiles[1], "q3": quartiles[2]}


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
        "runs": [{"ttft_ms": m.ttft_ms, "tpot_ms": m.tpot_ms} for m in measured],
    }
    result["tokens_per_second"] = 1000.0 / result["tpot_ms"]["median"]
    if baseline is not None:
        pairs = list(zip(measured, baseline, strict=True))
        result["tpot_ratio_to_autoregressive"] = spread([m.tpot_ms / b.tpot_ms for m, b in pairs])
        if plan.temperature == 0:
            result["greedy_equal"] = sum(m.token_ids == b.token_ids for m, b in pairs)
            result["greedy_first_difference"] = [
                _first_difference(m.token_ids, b.token_ids) for m, b in pairs
            ]
    stats = [m.stats for m in measured if m.stats is not None]
    if stats:
        result |= speculation(stats)
        if baseline is not None:
            plain_ms = statistics.median(b.tpot_ms for b in baseline)
            result |= costs(stats, plain_ms)
            ratio = result["tpot_ratio_to_autoregressive"]["median"]
            result["achieved_speedup"] = 1.0 / ratio
    return result


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)


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
