"""The stream view's lines: nothing lost, nothing parsed, figures as metrics.py defines them."""

from __future__ import annotations

import dataclasses
import json
from urllib.parse import parse_qs

import pytest

from fastinfer.config import DecodeConfig
from fastinfer.events import (
    Alternative,
    Finished,
    Origin,
    Role,
    Step,
    Token,
    to_json,
)
from fastinfer.metrics import RunStats
from fastinfer.ui.charts import (
    BASELINE_TRACE,
    MEDIAN_TRACE,
    POINT_TRACE,
    WINDOW_ROUNDS,
)
from fastinfer.ui.labels import NOTHING
from fastinfer.ui.records import Recorder, saved
from fastinfer.ui.run import Baseline, Phase, Preview, Tick
from tests.browser.fake_engine import FAKE_SEED, FakeEngine
from tests.recorded import lines, points, run, steps_of, texts


@pytest.mark.parametrize("method", ["autoregressive", "speculative", "cascade"])
def test_tokens_come_through_in_order_with_text_and_origin(method: str) -> None:
    events, records = run(method)
    tokens = [token for event in events if isinstance(event, Step) for token in event.tokens]
    spans = [span for step in steps_of(records) for span in step["tokens"]]
    assert [(s["text"], s["origin"], s["position"], s["id"]) for s in spans] == [
        (t.text, t.origin.value, t.position, t.id) for t in tokens
    ]
    assert events[-1] == Finished(
        reason="length",
        text="".join(s["text"] for s in spans),
        num_tokens=60,
        elapsed_ms=events[-1].elapsed_ms,  # type: ignore[union-attr]
    )


def test_probabilities_are_given_only_where_the_engine_gave_them() -> None:
    _, records = run()
    for span in (span for step in steps_of(records) for span in step["tokens"]):
        drafted = span["origin"] in ("draft", "intermediate")
        assert span["target_prob"] == 0.5
        assert (span["draft_prob"], span["accept_prob"]) == (
            (0.625, 0.8) if drafted else (None,) * 2
        )


def test_the_refused_draft_goes_with_its_round() -> None:
    events, records = run()
    refused = [[t.text for t in e.rejected] for e in events if isinstance(e, Step)]
    assert [[t["text"] for t in step["rejected"]] for step in steps_of(records)] == refused
    assert [" wrong"] in refused


def test_no_line_holds_a_tag_and_every_character_survives() -> None:
    recorder = Recorder(DecodeConfig())
    prompt = "<script>x</script>\u2028 ${x} {{y}} \\u003c 🌊"
    text = recorder.open("id", prompt)
    assert "<" not in text
    first = json.loads(text.split("\n", 1)[0])
    assert first["open"] == {"run": "id", "prompt": prompt, "length": 128}


def test_counts_add_up() -> None:
    _, records = run()
    words = texts(records)
    assert sum(int(words[f"count.{origin}"]) for origin in Origin) == 60


def test_gamma_points_stand_where_the_round_began_and_skip_the_prefill() -> None:
    events, records = run()
    steps = [event for event in events if isinstance(event, Step)]
    expected, before = [], 0
    for step in steps:
        if step.index:
            expected.append([0, before, step.gamma])
        before += len(step.tokens)
    expected.append([0, 60, steps[-1].gamma])  # the last step reaches the end of the text
    assert points(records, "gamma") == expected


def test_tpot_points_times_tokens_sum_to_the_decode_time() -> None:
    events, records = run()
    steps = [event for event in events if isinstance(event, Step)]
    each = [y for trace, _, y in points(records, "tpot") if trace == POINT_TRACE]
    spent = sum(y * len(step.tokens) for y, step in zip(each, steps[1:], strict=True))
    assert spent == pytest.approx(steps[-1].elapsed_ms - steps[0].elapsed_ms, abs=0.1)


def test_the_median_is_over_a_window_of_rounds() -> None:
    _, records = run("speculative", 200)
    each = [y for trace, _, y in points(records, "tpot") if trace == POINT_TRACE]
    medians = [y for trace, _, y in points(records, "tpot") if trace == MEDIAN_TRACE]
    last = sorted(each[-WINDOW_ROUNDS:])
    middle = WINDOW_ROUNDS // 2
    assert medians[-1] == pytest.approx((last[middle - 1] + last[middle]) / 2, abs=1e-3)
    assert medians[0] == each[0]


def test_cache_points_carry_megabytes() -> None:
    events, records = run()
    last = next(e for e in reversed(events) if isinstance(e, Step))
    target = [p for p in points(records, "cache") if p[0] == 0][-1]
    assert target[2] == last.cache_tokens[Role.TARGET]
    assert target[3] == f"{last.cache_bytes[Role.TARGET] / 1e6:.2f} MB"


def test_figures_are_those_of_run_stats() -> None:
    events, records = run()
    stats = RunStats()
    for event in events:
        stats.add(event)
    assert stats.tpot_ms is not None and stats.mean_accepted_length is not None
    words = texts(records)
    assert words["ttft"] == "20.0 ms"
    assert words["tpot"] == f"{stats.tpot_ms:.1f} ms"
    assert words["length"] == f"{stats.mean_accepted_length:.2f}"
    assert words["accepted.intermediate"] == "75 %"
    assert str(FAKE_SEED) in words["run"]


def test_baseline_line_and_speedup() -> None:
    config = DecodeConfig.from_mapping({"method": "cascade", "max_new_tokens": 60})
    recorder = Recorder(config)
    opened = lines(recorder.add(Baseline(tpot_ms=10.0, num_tokens=32)))
    assert points(opened, "tpot") == [[BASELINE_TRACE, 60, 10.0]]
    words = texts(opened)["baseline"]
    assert words.endswith("autoregressive, same prompt, 32 tokens, measured just before.")
    for event in FakeEngine().stream("once", config):
        recorder.add(event)
    figures = texts(lines(recorder.figures()))
    tpot = float(figures["tpot"].split()[0])
    assert float(figures["speedup"][:-1]) == pytest.approx(10.0 / tpot, abs=0.1)


def test_the_baseline_shows_its_text_and_its_time_so_far_and_counts_for_nothing() -> None:
    recorder = Recorder(DecodeConfig())
    assert lines(recorder.add(Preview(text="<The", num_tokens=1, tpot_ms=None))) == [
        {"preview": "<The"}
    ]
    later = lines(recorder.add(Preview(text=" sea", num_tokens=3, tpot_ms=9.8765)))
    assert later[0] == {"preview": " sea"}
    assert points(later, "tpot") == [[BASELINE_TRACE, 3, 9.877]]
    assert texts(lines(recorder.figures()))["tpot"] == NOTHING


def test_a_baseline_of_one_token_is_said_to_be_none() -> None:
    recorder = Recorder(DecodeConfig())
    records = lines(recorder.add(Baseline(tpot_ms=None, num_tokens=1)))
    assert "none" in texts(records)["baseline"] and "1 token " in texts(records)["baseline"]
    assert points(records, "tpot") == []
    assert texts(lines(recorder.figures()))["speedup"] == NOTHING


def test_phases_speak_and_ticks_do_not() -> None:
    recorder = Recorder(DecodeConfig())
    assert recorder.add(Tick()) == ""
    phase = texts(lines(recorder.add(Phase(name="baseline", num_tokens=32))))["phase"]
    assert phase == "Measuring the baseline: autoregressive, same prompt, up to 32 tokens"


def test_the_end_is_announced_once() -> None:
    _, records = run()
    states = [record for record in records if "state" in record]
    assert [s["state"] for s in states] == ["done"]
    assert states[0]["summary"].startswith("Done: 60 tokens, limit reached.")


def test_large_seeds_keep_their_digits() -> None:
    config = DecodeConfig.from_mapping({"seed": 2**63 - 1, "max_new_tokens": 1})
    recorder = Recorder(config)
    started = next(iter(FakeEngine().stream("a", config)))
    assert "seed 9223372036854775807 " in texts(lines(recorder.add(started)))["run"]


def test_only_figures_that_changed_are_sent_again() -> None:
    config = DecodeConfig.from_mapping({"method": "cascade", "max_new_tokens": 60})
    recorder = Recorder(config)
    events = FakeEngine().stream("once", config)
    for _ in range(5):
        recorder.add(next(events))
    assert len(texts(lines(recorder.figures()))) > 10
    assert recorder.figures() == ""
    recorder.add(next(events))
    again = texts(lines(recorder.figures()))
    assert "count.draft" in again and "ttft" not in again and "count.target" not in again


# --- what a saved run holds ---


def test_every_event_is_there_to_save_and_reads_as_the_engine_said_it() -> None:
    events, records = run(press="knorm", press_interval=8)
    kept = [record["event"] for record in records if "event" in record]
    assert kept == [saved(event) for event in events]
    for mine, event in zip(kept, events, strict=True):
        whole = json.loads(json.dumps(to_json(event)))
        for token in (*whole.get("tokens", ()), *whole.get("rejected", ())):
            assert token.pop("logprob") is None and token.pop("alternatives") == []
        assert mine == whole


def test_a_saved_event_keeps_log_probabilities_that_were_asked_for_and_no_false_digits() -> None:
    other = Alternative(id=2, text=" b", logprob=-1.23456789)
    token = Token(
        id=1, text=" a", origin=Origin.TARGET, position=0, target_prob=1 / 3, logprob=-0.5,
        alternatives=(other,),
    )  # fmt: skip
    (step,) = [e for e in run("autoregressive", 1)[0] if isinstance(e, Step)]
    kept = saved(dataclasses.replace(step, tokens=(token,)))["tokens"][0]
    assert kept["target_prob"] == 0.333333
    assert kept["logprob"] == -0.5 and kept["alternatives"][0]["logprob"] == -1.234568


def test_the_link_holds_the_form_and_the_seed_that_was_used_but_no_output() -> None:
    config = DecodeConfig.from_mapping({"method": "cascade", "max_new_tokens": 30})
    recorder = Recorder(config)
    text = recorder.open("id", "a & b = <c>")
    text += "".join(map(recorder.add, FakeEngine().stream("a & b = <c>", config)))
    (link,) = [record["link"] for record in lines(text) if "link" in record]
    found = parse_qs(link, keep_blank_values=True)
    assert found["prompt"] == ["a & b = <c>"] and found["seed"] == [str(FAKE_SEED)]
    assert found["method"] == ["cascade"] and "sea" not in link and "text" not in found
