"""The benchmark's order, arithmetic, table and page, on runs whose every figure is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastinfer.evaluation import environment, report
from fastinfer.evaluation.benchmark import (
    Plan,
    costs,
    first_difference,
    held,
    run_plan,
    speculation,
    spread,
    summarise,
)
from fastinfer.evaluation.contenders import Measured, Task
from fastinfer.evaluation.table import table
from fastinfer.events import Role, Stage, Started
from fastinfer.metrics import RunStats, StageCounts


def measured(tpot_ms: float, token_ids: tuple[int, ...] = (1, 2), **more: Any) -> Measured:
    return Measured(token_ids=token_ids, ttft_ms=10.0, tpot_ms=tpot_ms, **more)


class Recorder:
    """A contender that writes down what it is asked, in a list shared by all."""

    def __init__(self, name: str, calls: list[tuple[str, Task]]) -> None:
        self.name = name
        self.calls = calls

    def run(self, task: Task) -> Measured:
        self.calls.append((self.name, task))
        return measured(1.0, tuple(range(task.max_new_tokens)))


# --- order --------------------------------------------------------------------------------------


def recorded(plan: Plan, names: str) -> list[tuple[str, Task]]:
    calls: list[tuple[str, Task]] = []
    run_plan(plan, [Recorder(name, calls) for name in names], lambda done, total: None)
    return calls


@pytest.mark.parametrize("prompts", [1, 2, 3])
def test_each_prompt_meets_the_contenders_in_both_orders(prompts: int) -> None:
    plan = Plan(prompts={f"p{i}": (i,) for i in range(prompts)}, max_new_tokens=20, repeats=2)
    calls = recorded(plan, "abc")
    assert [name for name, _ in calls[:3]] == ["a", "b", "c"]  # the warm-up
    orders: dict[int, list[str]] = {}
    for start in range(3, len(calls), 3):
        block = calls[start : start + 3]
        assert len({task for _, task in block}) == 1, "one round, one task"
        orders.setdefault(block[0][1].prompt_ids[0], []).append("".join(n for n, _ in block))
    assert len(orders) == prompts
    assert all(sorted(seen) == ["abc", "cba"] for seen in orders.values())


def test_the_warm_up_is_short_and_every_repeat_has_its_own_seed() -> None:
    plan = Plan(prompts={"p": (7,)}, max_new_tokens=20, repeats=3, seed=5, temperature=0.5)
    tasks = [task for _, task in recorded(plan, "a")]
    assert tasks[0].max_new_tokens == 8
    assert [task.max_new_tokens for task in tasks[1:]] == [20, 20, 20]
    assert [task.seed for task in tasks[1:]] == [5, 6, 7]
    assert {task.temperature for task in tasks} == {0.5}


def test_progress_counts_every_run_but_the_warm_up() -> None:
    seen: list[tuple[int, int]] = []
    plan = Plan(prompts={"p": (1,), "q": (2,)}, max_new_tokens=2, repeats=1)
    run_plan(plan, [Recorder("a", [])], lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_a_contender_that_ends_early_is_not_compared() -> None:
    class Short(Recorder):
        def run(self, task: Task) -> Measured:
            return measured(1.0, (1,))

    with pytest.raises(AssertionError, match="s ended early"):
        run_plan(Plan(prompts={"p": (1,)}, max_new_tokens=4), [Short("s", [])], lambda *_: None)


# --- figures ------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=30))
def test_quartiles_are_numpys(values: list[float]) -> None:
    expected = np.quantile(values, [0.25, 0.5, 0.75])
    assert list(spread(values).values()) == pytest.approx(list(expected))


def test_ratios_are_taken_within_a_round() -> None:
    """The machine slows down tenfold between rounds: medians of all runs would say nothing."""
    plan = Plan(prompts={"p": (1,)}, max_new_tokens=2, repeats=3)
    runs = {
        "autoregressive": [measured(1.0), measured(10.0), measured(100.0)],
        "other": [measured(2.0), measured(20.0), measured(200.0)],
    }
    result = summarise(plan, runs)["other"]
    assert result["tpot_ratio_to_autoregressive"] == {"q1": 2.0, "median": 2.0, "q3": 2.0}
    assert result["achieved_speedup"] == 0.5
    assert result["tokens_per_second"] == 1000.0 / 20.0


def test_ratios_by_prompt_belong_to_their_prompt() -> None:
    plan = Plan(prompts={"p": (1,), "q": (2,)}, max_new_tokens=2, repeats=2)
    runs = {
        "autoregressive": [measured(1.0)] * 4,
        "other": [measured(tpot) for tpot in (2.0, 5.0, 4.0, 7.0)],  # p, q, p, q
    }
    by_prompt = summarise(plan, runs)["other"]["tpot_ratio_by_prompt"]
    assert by_prompt["p"]["median"] == 3.0
    assert by_prompt["q"]["median"] == 6.0


def test_without_a_baseline_there_are_no_ratios() -> None:
    plan = Plan(prompts={"p": (1,)}, max_new_tokens=2, repeats=1)
    result = summarise(plan, {"other": [measured(2.0)]})["other"]
    assert not [key for key in result if "ratio" in key or "greedy" in key or "speedup" in key]


@pytest.mark.parametrize(
    ("a", "b", "where"),
    [((), (), None), ((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((4,), (5,), 0),
     ((1, 2, 3), (1, 2), 2), ((1,), (1, 2), 1)],
)  # fmt: skip
def test_first_difference(a: tuple[int, ...], b: tuple[int, ...], where: int | None) -> None:
    assert first_difference(a, b) == where


@pytest.mark.parametrize(("temperature", "compared"), [(0.0, True), (0.8, False)])
def test_texts_are_compared_only_where_they_must_be_equal(
    temperature: float, compared: bool
) -> None:
    plan = Plan(prompts={"p": (1,)}, max_new_tokens=2, repeats=2, temperature=temperature)
    runs = {
        "autoregressive": [measured(1.0), measured(1.0)],
        "other": [measured(1.0), measured(1.0, (1, 9))],
    }
    result = summarise(plan, runs)["other"]
    assert ("greedy_equal_runs" in result) is compared
    if compared:
        assert result["greedy_equal_runs"] == 1
        assert result["greedy_first_difference"] == [None, 1]


# --- c, v and what they predict -----------------------------------------------------------------


def stats_of(
    blocks: dict[int, list[tuple[float, float]]], tested: list[int], accepted: list[int]
) -> RunStats:
    counts = StageCounts(
        num_tested=sum(tested), num_accepted=sum(accepted), tested_at=tested, accepted_at=accepted
    )
    return RunStats(stages={Role.TARGET: counts}, blocks=blocks)


def test_costs_by_hand() -> None:
    """Blocks of 2: half a millisecond a drafted token, 6 ms to verify, 5 ms a plain step."""
    stats = stats_of({2: [(1.0, 6.0)] * 3}, tested=[3, 2], accepted=[2, 1])
    result = costs([stats], plain_ms=5.0)
    assert result["c"] == pytest.approx(0.1)
    assert result["v"] == {"2": pytest.approx(1.2)}
    assert result["rounds_by_block"] == {"2": 3}
    # 1 + 2/3 + 2/3 * 1/2 tokens a block, for 2 * 0.1 + 1.2 plain steps.
    assert result["predicted_speedup"] == pytest.approx(2.0 / 1.4)


@given(
    acceptance=st.integers(1, 99),
    gamma=st.integers(1, 8),
    c=st.floats(0.01, 0.9),
)
def test_the_prediction_is_the_papers_when_acceptance_is_the_same_everywhere(
    acceptance: int, gamma: int, c: float
) -> None:
    """Theorem 3.8 of arXiv:2211.17192, which takes v = 1."""
    alpha = acceptance / 100
    stats = stats_of({gamma: [(gamma * c, 1.0)]}, [100] * gamma, [acceptance] * gamma)
    expected = (1 - alpha ** (gamma + 1)) / ((1 - alpha) * (gamma * c + 1))
    assert costs([stats], plain_ms=1.0)["predicted_speedup"] == pytest.approx(expected)


def test_rounds_without_a_draft_count_as_plain_steps() -> None:
    stats = stats_of({0: [(0.0, 1.0)] * 2, 1: [(0.5, 1.0)] * 2}, [2], [2])
    # Two plain rounds give a token each for 1, two blocks give two each for 1.5.
    assert costs([stats], plain_ms=1.0)["predicted_speedup"] == pytest.approx(6 / 5)


def test_nothing_drafted_has_no_costs() -> None:
    assert costs([stats_of({0: [(0.0, 1.0)]}, [], [])], plain_ms=1.0) == {}


def test_speculation_adds_up_all_runs() -> None:
    runs = []
    for accepted in (3, 1):
        stats = RunStats(num_tokens=6, first_burst=1, num_rounds=2, draft_ms=1.0, verify_ms=3.0)
        counts = stats.stages.setdefault(Role.TARGET, StageCounts())
        counts.add(Stage(role=Role.TARGET, num_drafted=4, num_tested=4, num_accepted=accepted))
        runs.append(stats)
    result = speculation(runs)
    assert result["mean_accepted_length"] == 10 / 4
    assert result["draft_share"] == 0.25
    assert result["stages"]["target"]["acceptance"] == 0.5
    assert result["stages"]["target"]["acceptance_by_position"] == [1.0, 0.5, 0.5, 0.0]


def started(lossless: bool) -> Started:
    return Started(
        method="speculative", rule="residual", num_prompt_tokens=1, max_new_tokens=2, seed=1,
        models={}, dtype="float32", device="cpu", lossless=lossless, lossless_reason="", options={},
    )  # fmt: skip


def test_what_is_held_is_the_median_over_runs() -> None:
    runs = [
        RunStats(cache_bytes={Role.TARGET: size, Role.DRAFT: 7}, compress_ms=size / 10)
        for size in (10, 30, 50)
    ]
    assert held(runs) == {
        "lossless": True, "kv_bytes": {"target": 30, "draft": 7}, "compress_ms": 3.0
    }  # fmt: skip


def test_a_lossy_method_is_called_so() -> None:
    exact, lossy = RunStats(started=started(True)), RunStats(started=started(False))
    assert held([exact])["lossless"] and not held([exact, lossy])["lossless"]
    runs = {
        "autoregressive": [measured(1.0)],
        "fused": [measured(1.0, stats=lossy)],
        "drafted": [measured(1.0, stats=exact)],
    }
    assert "target's own cache: fused\n" in table(document(**runs))


# --- table and page -----------------------------------------------------------------------------


def document(**runs: list[Measured]) -> dict[str, Any]:
    plan = Plan(prompts={"p": (1,)}, max_new_tokens=2, repeats=1)
    return {
        "environment": {"gpu": None, "processor": "Toy", "threads": 1},
        "models": {"target": "<script>alert(1)</script>"},
        "dtype": "bfloat16",
        "device": "cpu",
        "plan": {"prompts": {"p": 1}, "max_new_tokens": 2, "temperature": 0.0, "repeats": 1},
        "notes": ["<b>& a note</b>"],
        "results": summarise(plan, runs),
    }


def slow_speculation() -> list[Measured]:
    return [measured(2.0, stats=stats_of({1: [(1.0, 1.0)]}, [1], [0]))]


def test_the_table_is_aligned_and_says_when_speculation_loses() -> None:
    text = table(document(autoregressive=[measured(1.0)], speculative=slow_speculation()))
    head, first, second = text.splitlines()[3:6]
    assert len(first) == len(second) == len(head)
    assert "2.00 [2.00, 2.00]" in second
    assert text.splitlines()[1].startswith("Toy, 1 threads, bfloat16; 1 prompts of 1 tokens")
    assert "slower than plain decoding here: speculative" in text
    assert "speculative: the target accepted 0%; by position 0.00" in text
    assert "speculative: v(gamma), in plain steps: 1: 1.00" in text
    assert "only sure to be equal in float32" in text


def test_the_uncached_baseline_is_labelled_as_such() -> None:
    runs = {"autoregressive": [measured(1.0)], "autoregressive-uncached": [measured(9.0)]}
    assert "no fair baseline" in table(document(**runs))


def test_names_are_text_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    made = document(autoregressive=[measured(1.0)], speculative=slow_speculation())
    report.write_html(made, json.dumps(made), page)
    text = page.read_text()
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "&lt;b&gt;&amp; a note" in text
    assert '<script src="' not in text, "the page must work offline"


def test_a_picture_that_can_not_be_drawn_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ValueError("Image export requires the kaleido package\nmore")

    monkeypatch.setattr("plotly.graph_objects.Figure.write_image", fail)
    made = document(autoregressive=[measured(1.0)])
    assert report.write_png(made, tmp_path / "x.png") == (
        "no picture: it takes the package kaleido and a Chromium "
        "(Image export requires the kaleido package)"
    )


# --- memory -------------------------------------------------------------------------------------


def test_memory_of_a_run_is_what_it_took_on_top() -> None:
    size = 64 * 2**20
    held = torch.ones(size, dtype=torch.uint8)  # held before, so no part of the run
    _, memory = environment.with_memory(lambda: torch.ones(size, dtype=torch.uint8).numel())
    if memory is None:
        pytest.skip("this system does not start a new peak")
    assert size * 0.9 < memory < size * 2
    assert environment.peak_memory_bytes() > held.numel() + size


def test_a_system_that_does_not_tell_gives_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "CLEAR_REFS", tmp_path / "no" / "such")
    assert environment.with_memory(lambda: 7) == (7, None)
