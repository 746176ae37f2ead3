"""Metrics: one definition each, worked out by hand here.

Each test that names a public report guards against what people met elsewhere.
"""

from __future__ import annotations

import dataclasses
import json

import pytest
from fake_engine import FakeEngine
from hypothesis import given
from hypothesis import strategies as st

from fastinfer.events import Compressed, Finished, Origin, Role, Shadow, Stage, Step, Token
from fastinfer.metrics import RunStats, StageCounts


def stage(drafted: int, tested: int, accepted: int, role: Role = Role.TARGET) -> Stage:
    return Stage(role=role, num_drafted=drafted, num_tested=tested, num_accepted=accepted)


def step(index: int, num_tokens: int, elapsed_ms: float, *stages: Stage) -> Step:
    token = Token(id=0, text="x", origin=Origin.DRAFT, position=0, target_prob=1.0)
    return Step(
        index=index,
        tokens=(token,) * num_tokens,
        rejected=(),
        stages=stages,
        gamma=4,
        draft_ms=1.0,
        verify_ms=3.0,
        elapsed_ms=elapsed_ms,
        cache_tokens={Role.TARGET: index},
        cache_bytes={Role.TARGET: index * 100},
    )


def fold(*steps: Step) -> RunStats:
    stats = RunStats()
    for one in steps:
        stats.add(one)
    return stats


def test_ttft_is_the_first_step_and_no_part_of_tpot() -> None:
    stats = fold(step(0, 1, 500.0), step(1, 4, 540.0), step(2, 1, 560.0))
    assert stats.ttft_ms == 500.0
    assert stats.tpot_ms == pytest.approx(60.0 / 5)
    assert stats.tokens_per_second == pytest.approx(1000.0 / 12.0)


def test_tpot_counts_tokens_and_not_steps() -> None:
    """vllm-project/vllm#47382, dstackai/dstack#4225: a block of five in 50 ms is 10 ms a token."""
    assert fold(step(0, 1, 0.0), step(1, 5, 50.0)).tpot_ms == pytest.approx(10.0)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 1000)), min_size=1, max_size=30),
    st.floats(0.1, 1000),
)
def test_step_times_sum_to_the_decode_time(bursts: list[tuple[int, float]], ttft: float) -> None:
    steps, clock = [step(0, 1, ttft)], ttft
    for index, (count, cost) in enumerate(bursts, 1):
        clock += cost
        steps.append(step(index, count, clock))
    stats = fold(*steps)
    assert stats.tpot_ms is not None
    decoded = stats.tpot_ms * (stats.num_tokens - 1)
    assert decoded == pytest.approx(sum(cost for _, cost in bursts), rel=1e-6, abs=1e-6)


def test_one_token_has_a_ttft_and_no_tpot() -> None:
    stats = fold(step(0, 1, 30.0))
    assert stats.ttft_ms == 30.0
    assert stats.tpot_ms is None
    assert stats.tokens_per_second is None
    assert stats.mean_accepted_length is None


def test_nothing_yet_is_no_crash() -> None:
    mapping = RunStats().to_mapping()
    assert mapping["tokens"] == 0
    assert mapping["ttft_ms"] is None
    assert mapping["finish_reason"] is None
    json.dumps(mapping)


def test_acceptance_counts_tested_tokens_only() -> None:
    """ggml-org/llama.cpp#14048: what was drafted but never tested is no refusal."""
    counts = StageCounts()
    counts.add(stage(drafted=8, tested=3, accepted=2))
    counts.add(stage(drafted=8, tested=8, accepted=8))
    assert counts.acceptance == pytest.approx(10 / 11)
    assert counts.num_drafted == 16
    ignored = counts.num_drafted - counts.num_tested
    rejected = counts.num_tested - counts.num_accepted
    assert counts.num_accepted + rejected + ignored == counts.num_drafted


def test_acceptance_of_nothing_is_unknown() -> None:
    counts = StageCounts()
    assert counts.acceptance is None
    counts.add(stage(0, 0, 0))
    assert counts.acceptance is None
    assert counts.acceptance_by_position == []


def test_acceptance_by_position_is_conditional_on_being_reached() -> None:
    counts = StageCounts()
    for accepted, tested in ((0, 1), (1, 2), (2, 3), (3, 3)):
        counts.add(stage(drafted=3, tested=tested, accepted=accepted))
    assert counts.acceptance_by_position == pytest.approx([3 / 4, 2 / 3, 1 / 2])


def test_a_position_that_never_stood_counts_as_zero() -> None:
    counts = StageCounts()
    counts.add(stage(drafted=2, tested=1, accepted=0))
    assert counts.acceptance_by_position == [0.0]


def test_mean_accepted_length_has_the_target_s_own_token_and_not_the_prefill() -> None:
    stats = fold(
        step(0, 1, 1.0, stage(0, 0, 0)),
        step(1, 5, 2.0, stage(4, 4, 4)),
        step(2, 1, 3.0, stage(4, 1, 0)),
    )
    assert stats.mean_accepted_length == pytest.approx(6 / 2)
    assert stats.num_rounds == 2


def test_a_plain_run_has_a_mean_accepted_length_of_one() -> None:
    stats = fold(*(step(index, 1, float(index), stage(0, 0, 0)) for index in range(5)))
    assert stats.mean_accepted_length == 1.0


def test_the_stages_of_a_cascade_are_counted_apart() -> None:
    inner = Role.INTERMEDIATE
    stats = fold(
        step(0, 1, 1.0),
        step(1, 3, 2.0, stage(4, 2, 1, inner), stage(4, 4, 4, inner), stage(7, 3, 2)),
    )
    assert stats.stages[inner].passes == 2
    assert stats.stages[inner].acceptance == pytest.approx(5 / 6)
    assert stats.stages[Role.TARGET].acceptance == pytest.approx(2 / 3)
    by_name = stats.to_mapping()["stages"]
    assert set(by_name) == {"intermediate", "target"}


def test_costs_are_those_of_the_rounds_and_the_cache_is_the_last_one() -> None:
    stats = fold(step(0, 1, 1.0), step(1, 2, 2.0), step(2, 2, 3.0))
    assert stats.num_rounds == 2
    assert (stats.draft_ms, stats.verify_ms) == (2.0, 6.0)  # the prefill is in TTFT already
    assert stats.cache_tokens == {Role.TARGET: 2}
    assert stats.cache_bytes == {Role.TARGET: 200}


def test_the_mapping_is_json_and_complete() -> None:
    stats = RunStats()
    events = list(FakeEngine().events())
    for event in events:
        stats.add(event)
    mapping = json.loads(json.dumps(stats.to_mapping()))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert mapping["tokens"] == finished.num_tokens == sum(mapping["origins"].values())
    assert mapping["origins"] == {
        "draft": 1, "intermediate": 1, "resampled": 1, "bonus": 1, "target": 1
    }  # fmt: skip
    assert mapping["finish_reason"] == "length"
    assert mapping["target_passes"] == 1
    assert mapping["cache_bytes"] == {"draft": 800_000, "target": 1_500_000}


def test_compressions_and_shadows_are_summed_up() -> None:
    stats = RunStats()
    for after, role in enumerate((Role.TARGET, Role.TARGET, Role.DRAFT)):
        stats.add(
            Compressed(
                role=role, after_step=after, entries_before=8, entries_after=4, bytes_before=80,
                bytes_after=40, allocated_before=99, allocated_after=50, compress_ms=0.5,
            )
        )  # fmt: skip
    assert stats.compressions == {Role.TARGET: 2, Role.DRAFT: 1}
    assert stats.compress_ms == 1.5
    assert stats.shadow is None
    for count, kl, agreement in ((1, 0.4, 0.0), (3, 0.2, 1.0)):
        shadow = Shadow(num_positions=count, kl_nats=kl, top1_agreement=agreement)
        stats.add(dataclasses.replace(step(0, count, 5.0), shadow=shadow))
    assert stats.shadow is not None
    assert stats.shadow.num_positions == 4
    assert stats.shadow.kl_nats == pytest.approx(0.25)  # by position, not by round
    assert stats.shadow.top1_agreement == pytest.approx(0.75)
    assert json.loads(json.dumps(stats.to_mapping()))["shadow"]["num_positions"] == 4
