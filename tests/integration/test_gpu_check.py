"""The script that measures a GPU: the same code on a CPU with tiny shapes, and its safety net."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from scripts.gpu_check import PARTS, Part, main, run_parts
from scripts.gpu_decoding import PLANTED, run
from scripts.gpu_lab import Lab

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("gpu") / "gpu.json"
    command = [sys.executable, "-m", "scripts.gpu_check", "--device", "cpu", "--shapes", "tiny"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert all(f"{name}: done" in done.stderr for name in PARTS)
    loaded: dict[str, Any] = json.loads(out.read_text())
    return loaded


def test_every_part_ran_and_says_what_it_is(report: dict[str, Any]) -> None:
    assert list(report["parts"]) == list(PARTS)
    assert all(part["ok"] and part["figures"] for part in report["parts"].values())
    assert report["measured"] is False, "a CPU's figures are not those of a GPU"
    assert str(PLANTED) in report["notes"]["acceptance"]


def test_the_budgets_fit_in_eight_minutes() -> None:
    assert sum(part.seconds for part in PARTS.values()) < 7 * 60


def test_parity_is_small_and_could_be_missed(report: dict[str, Any]) -> None:
    figures = report["parts"]["parity"]["figures"]
    assert len(figures) == 4
    for name, found in figures.items():
        errors = found["relative_error"]
        assert set(errors) == {"graph_eager", "graph_transformers"}
        assert max(errors.values()) < found["allowed"], name
    assert figures["draft bfloat16"]["relative_error"]["graph_transformers"] > 0


def test_figures_agree_with_each_other(report: dict[str, Any]) -> None:
    decoding = report["parts"]["decoding"]["figures"]
    plain = decoding["target"]["autoregressive"]
    assert plain["tokens_per_round"] == 1.0
    drafted = [found for name, found in decoding["target"].items() if "speculative" in name]
    assert len(drafted) == 3
    for found in drafted:
        assert found["speedup"] == pytest.approx(plain["tpot_ms"] / found["tpot_ms"])
    for shape in report["parts"]["steps"]["figures"].values():
        for row in shape["steps"]:
            assert row["eager_over_graph"] == pytest.approx(row["eager_ms"] / row["graph_ms"])
    speedups = [found["speedup"] for found in drafted]
    summary = report["summary"]
    assert summary["best_speculative_speedup"] == max(speedups)
    assert summary["autoregressive_tpot_ms"] == plain["tpot_ms"]
    assert all(value > 0 for value in summary.values())
    assert set(report["parts"]["transformers"]["figures"]["target"]) == {
        "generate", "assisted by draft"
    }  # fmt: skip


def test_the_planted_rate_is_what_comes_out() -> None:
    lab = Lab(CPU, "tiny")
    target, draft = lab.model("target"), lab.model("draft")
    done = run(lab, target.eager, draft.eager, 4, 300)
    stages = [stage for committed in done.rounds[1:] for stage in committed.round.stages]
    tested = sum(stage.num_tested for stage in stages)
    # 300 tokens test about 280 drafted ones: 0.1 is four standard deviations.
    rate = sum(stage.num_accepted for stage in stages) / tested
    assert abs(rate - PLANTED) < 0.1 and tested > 150


def test_a_part_that_fails_or_takes_too_long_loses_nothing(tmp_path: Path) -> None:
    def fails(lab: Lab, figures: dict[str, Any]) -> None:
        figures["before"] = 1
        raise RuntimeError("no such kernel")

    def hangs(lab: Lab, figures: dict[str, Any]) -> None:
        figures["before"] = 2
        while True:
            time.sleep(0.01)

    def works(lab: Lab, figures: dict[str, Any]) -> None:
        figures["value"] = 3

    out = tmp_path / "out.json"
    parts = {"fails": Part(fails, 5), "hangs": Part(hangs, 0.2), "works": Part(works, 5)}
    whole = run_parts(parts, Lab(CPU, "tiny"), out)
    report = whole["parts"]
    assert json.loads(out.read_text()) == whole
    assert set(whole["summary"].values()) == {None}
    assert report["fails"]["error"] == "RuntimeError: no such kernel"
    assert report["hangs"]["error"] == "OutOfTime: more than 0 s"
    assert [part["figures"] for part in report.values()] == [
        {"before": 1}, {"before": 2}, {"value": 3}
    ]  # fmt: skip
    assert [part["ok"] for part in report.values()] == [False, False, True]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--device", "cuda"])
    assert caught.value.code == 2
    assert "this machine has no CUDA device" in capsys.readouterr().err
