"""What the page measures is what the commands measure, on the bundled models."""

from __future__ import annotations

import pytest

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.press_grid import report, run_grid
from fastinfer.evaluation.windows import Document, coder_of, cut
from fastinfer.events import Role
from fastinfer.ui import benchmark_tab, quality_tab
from fastinfer.ui.benchmark_report import report as benchmark_report
from fastinfer.ui.quality_report import report as quality_report

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32")


def test_quality_is_the_perplexity_of_the_command(engine: Engine) -> None:
    asked = quality_tab.read_form(None, ["streaming"], [0.5], 64, 3, 16)
    *_, last = quality_tab.measure(engine, asked)
    assert last.finished and last.document is not None
    windows, _ = cut(
        [Document(name=d.name, text=d.text) for d in asked.documents],
        coder_of(engine.tokenizer), context=64, stride=32, max_windows=3,
    )  # fmt: skip

    def session(config: DecodeConfig) -> object:
        return engine.session(Role.TARGET, config)

    runs, _ = run_grid(asked.variants, windows, 16, session, lambda: None)  # type: ignore[arg-type]
    assert last.document["results"] == report(asked.variants, runs)
    made = quality_report(last)
    assert made.state == "done" and made.table is not None and made.download is not None
    assert [row[0] for row in made.table.rows] == [UNCOMPRESSED, "streaming@0.5"]


def test_quality_shows_every_variant_after_each_window(engine: Engine) -> None:
    asked = quality_tab.read_form(None, ["knorm"], [0.5], 64, 2, 0)
    for measuring in quality_tab.measure(engine, asked):
        if measuring.document is not None:
            windows = {r["windows"] for r in measuring.document["results"].values()}
            assert windows == {measuring.done // 2}
            assert quality_report(measuring).charts


def test_a_benchmark_of_the_page_is_that_of_the_command(engine: Engine) -> None:
    asked = benchmark_tab.read_form(
        ["autoregressive", "speculative"], ["The sea"], 16, 8, 2, 0, "gamma_policy = constant"
    )
    *steps, last = benchmark_tab.measure(engine, asked)
    assert [step.done for step in steps] == [0, 1, 2, 3] and last.finished
    assert steps[1].document is None and steps[2].document is not None
    document = last.document
    assert document is not None and document["kind"] == "fastinfer-bench"
    result = document["results"]["speculative"]
    assert len(result["runs"]) == 2 and result["greedy_equal_runs"] == 2
    made = benchmark_report(last)
    assert made.table is not None and len(made.table.rows) == 2
    assert {chart.name for chart in made.charts} == {"tpot", "speedup", "acceptance"}
