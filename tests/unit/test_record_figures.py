"""The stream view's lines of presses, acceptance, costs and models."""

from __future__ import annotations

from typing import Any

import pytest

from fastinfer.config import DecodeConfig
from fastinfer.evaluation.benchmark import costs
from fastinfer.events import (
    Compressed,
    Role,
    Step,
)
from fastinfer.metrics import RunStats
from fastinfer.ui.charts import (
    MARK_TRACE,
    UNCOMPRESSED_TRACE,
)
from fastinfer.ui.labels import NOTHING
from fastinfer.ui.records import Recorder
from fastinfer.ui.run import Baseline
from tests.browser.fake_engine import LIVE_BYTES, FakeEngine
from tests.recorded import lines, points, run, texts

# --- presses ---


def test_a_compression_is_a_fall_of_the_line_and_a_mark() -> None:
    events, records = run(press="knorm", press_interval=8)
    compressions = [event for event in events if isinstance(event, Compressed)]
    marks = [p for p in points(records, "cache") if p[0] == MARK_TRACE]
    assert len(marks) == len(compressions) > 1
    first = compressions[0]
    assert [marks[0][2]] == [first.entries_after]
    assert f"{first.entries_before} → {first.entries_after} entries" in marks[0][3]
    target = [p for p in points(records, "cache") if p[0] == 0]
    at = marks[0][1]
    assert [y for _, x, y, _ in target if x == at][-1] == first.entries_after


def test_the_dashed_curve_is_what_would_be_held_without_the_press() -> None:
    _, records = run(press="knorm", press_interval=8)
    whole = [p for p in points(records, "cache") if p[0] == UNCOMPRESSED_TRACE]
    start = 4  # words of the prompt
    assert [y for _, _, y, _ in whole] == [x + start for _, x, _, _ in whole]
    assert whole[-1][3].endswith(" MB (target)")
    assert run()[1] and not [p for p in points(run()[1], "cache") if p[0] == UNCOMPRESSED_TRACE]


def test_the_share_kept_and_the_shadow_are_figures() -> None:
    events, records = run(press="knorm", press_interval=8)
    last = next(e for e in reversed(events) if isinstance(e, Step))
    words = texts(records)
    kept = last.cache_tokens[Role.TARGET] / (60 + 4)
    assert words["kept"] == f"{100 * kept:.0f} %"
    assert words["shadow.kl"] == "0.2500 nats" and words["shadow.top1"] == "75 %"
    assert texts(run()[1])["kept"] == NOTHING and texts(run()[1])["shadow.kl"] == NOTHING
    assert last.cache_bytes[Role.TARGET] == LIVE_BYTES[Role.TARGET] * (60 + 4)


@pytest.mark.parametrize(
    ("on", "law", "icon", "reason"),
    [
        ("target", "lossy", "⚠ Lossy", "knorm drops entries of the target's own cache"),
        ("draft", "lossless", "✓ Lossless", "presses act on drafting models only"),
    ],
)
def test_the_badge_says_what_the_text_is_worth_and_why(
    on: str, law: str, icon: str, reason: str
) -> None:
    _, records = run(press="knorm", press_on=on)
    assert [record["law"] for record in records if "law" in record] == [law]
    assert texts(records)["law"] == icon and texts(records)["law.reason"].startswith(reason)


# --- the smaller figures ---


def test_acceptance_bars_are_those_of_run_stats() -> None:
    events, records = run()
    stats = RunStats()
    for event in events:
        stats.add(event)
    bars: dict[str, Any] = {}
    for record in records:
        bars |= record.get("bars", {})
    for role in (Role.TARGET, Role.INTERMEDIATE):
        counts = stats.stages[role]
        expected = zip(counts.acceptance_by_position, counts.tested_at, strict=True)
        assert bars[role.value] == [[round(a, 3), n] for a, n in expected]


def test_predicted_speedup_is_the_benchmarks_own_formula() -> None:
    config = DecodeConfig.from_mapping({"method": "cascade", "max_new_tokens": 60})
    recorder, stats = Recorder(config), RunStats()
    recorder.add(Baseline(tpot_ms=10.0, num_tokens=32))
    for event in FakeEngine().stream("once", config):
        stats.add(event)
        recorder.add(event)
    theory = costs([stats], 10.0)
    words = texts(lines(recorder.figures()))
    assert words["c"] == f"{theory['c']:.3f}"
    assert words["predicted"] == f"{theory['predicted_speedup']:.2f}×"
    assert words["achieved"] == words["speedup"]
    assert texts(run()[1])["c"] == NOTHING  # nothing to compare with


def test_each_model_says_whose_forward_it_uses() -> None:
    words = texts(run()[1])
    assert words["model.target"] == "fake-target" and words["decoder.target"] == "own decoder"
    assert words["decoder.draft"] == "transformers"
    assert words["device"] == "cpu" and words["dtype"] == "float32"
    alone = texts(run("autoregressive")[1])
    assert alone["model.draft"] == alone["decoder.draft"] == NOTHING
