"""Presses compared: with the whole cache, with the control, in a table and in a plot."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.evaluation import pareto
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.perplexity import measure
from fastinfer.evaluation.ppl_table import table
from fastinfer.evaluation.press_grid import Variant, against_random, report, run_grid
from tests.two_tokens import TwoTokens, losses, window


def variant(name: str, **options: Any) -> Variant:
    config = DecodeConfig.from_mapping({"method": "autoregressive", **options})
    return Variant(name=name, config=config)


def grid() -> list[Variant]:
    return [
        variant(UNCOMPRESSED),
        *(variant(f"{p}@0.5", press=p, compression_ratio=0.5) for p in ("knorm", "random", "tova")),
        variant("tova@0", press="tova", compression_ratio=0),
    ]


RUNS = {
    UNCOMPRESSED: losses(20.0, 30.0),
    "knorm@0.5": losses(21.0, 31.2, live=4.0),
    "random@0.5": losses(23.0, 33.0, live=4.0),
    "tova@0.5": losses(24.0, 32.0, live=4.0),
    "tova@0": losses(20.0, 30.0),
}


def test_each_press_is_compared_with_the_whole_cache_and_the_control() -> None:
    nothing = variant("random@0", press="random", compression_ratio=0)
    results = report([*grid(), nothing], {**RUNS, nothing.name: RUNS[UNCOMPRESSED]})
    assert list(results) == [*RUNS, nothing.name]
    assert "over_uncompressed" not in results[UNCOMPRESSED]
    assert results["knorm@0.5"]["over_uncompressed"]["nats_per_token"] == pytest.approx(0.11)
    assert results["knorm@0.5"]["over_random"]["nats_per_token"] == pytest.approx(-0.19)
    assert results["knorm@0.5"]["live_share"] == 0.5
    assert "over_random" not in results["random@0.5"]
    assert "over_random" not in results["tova@0"], "nothing is dropped, so nothing is chosen"
    assert against_random(results) == ([], ["tova@0.5"])


@pytest.mark.parametrize(
    ("distance", "error", "expected"),
    [
        (-0.3, 0.1, ([], [])),
        (-0.1, 0.1, ([], ["p"])),
        (0.1, 0.1, ([], ["p"])),
        (0.3, 0.1, (["p"], [])),
        (0.0, None, ([], ["p"])),
        (0.1, None, (["p"], [])),
    ],
)
def test_two_standard_errors_decide(
    distance: float, error: float | None, expected: tuple[list[str], list[str]]
) -> None:
    result = {"over_random": {"nats_per_token": distance, "standard_error": error}}
    assert against_random({"p": result, "whole": {}}) == expected


def test_a_press_that_a_model_cannot_have_is_named_and_left_out() -> None:
    def new_model(config: DecodeConfig) -> TwoTokens:
        if config.compression and config.compression.press == "tova":
            raise ConfigError("press", "tova needs queries")
        return TwoTokens()

    windows = [window([0, 1, 0, 0], 2)]
    runs, notes = run_grid(grid(), windows, None, new_model, lambda: None)
    assert list(runs) == [UNCOMPRESSED, "knorm@0.5", "random@0.5"]
    assert notes[0] == "tova@0.5 is left out: press: tova needs queries"
    with pytest.raises(ConfigError, match="tova needs queries"):
        run_grid(grid()[3:], windows, None, new_model, lambda: None)


def test_progress_counts_windows() -> None:
    seen: list[int] = []
    measure(TwoTokens, [window([0, 1], 1)] * 3, None, lambda: seen.append(1))
    assert len(seen) == 3


def document() -> dict[str, Any]:
    return {
        "role": "target",
        "model": "<b>model</b>",
        "dtype": "float32",
        "device": "cpu",
        "environment": {"processor": "a processor", "threads": 1, "gpu": None},
        "corpus": {"name": "book.txt"},
        "plan": {"context": 12, "stride": 6, "interval": 64, "positions": "original",
                 "presses": ["knorm@0.5"]},
        "notes": ["a remark"],
        "results": report(grid(), RUNS),
    }  # fmt: skip


def test_the_table_says_what_was_measured_and_who_loses() -> None:
    lines = table(document()).splitlines()
    assert lines[2] == (
        "book.txt: 20 tokens (80 bytes) counted in 2 windows of 12, the last 6 of each; presses "
        "act after the first part and every 64 tokens, positions original"
    )
    row = next(line for line in lines if line.startswith("knorm@0.5"))
    assert "+0.1100 ± 0.0100" in row
    assert row.endswith("50%")
    assert any(line == "neither better nor worse by as much: tova@0.5" for line in lines)
    assert len({len(line) for line in lines[4:10]}) == 1, "columns are aligned"


def test_an_interval_that_is_there_for_nobody_has_no_column() -> None:
    made = document()
    made["results"] = report(grid()[:1], {UNCOMPRESSED: losses(20.0)})
    head = table(made).splitlines()[4]
    assert head.split() == ["perplexity", "nats/token", "bits/byte", "live", "KV", "MB"]


def test_the_plot_has_a_line_for_each_press_from_the_whole_cache_on(tmp_path: Path) -> None:
    made = document()
    lines = {trace.name: trace for trace in pareto.figure(made).data}
    assert list(lines) == ["knorm", "random", "tova", UNCOMPRESSED]
    assert list(lines["knorm"].x) == [4e-6, 8e-6]
    assert lines["knorm"].y[1] == pytest.approx(math.exp(2.5))
    assert lines["knorm"].error_y.array[0] > 0
    assert lines[UNCOMPRESSED].error_y.array[0] == 0
    pareto.write_html(made, json.dumps(made), tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>model</b>" not in content
    assert "&lt;b&gt;model&lt;/b&gt;" in content
    assert "cdn.plot.ly" not in content.split("<body>")[0]
