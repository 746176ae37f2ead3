"""A comparison: paired runs in turn, what is recorded, and what is said about two texts."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.evaluation.comparison import (
    Column,
    Compared,
    Progress,
    compare,
)
from fastinfer.events import Event, Finished, Origin, Role, Started, Step, Token


class Scripted:
    """Each method makes one token a step at its own pace; `ids` are the tokens of each method."""

    def __init__(self, pace: dict[str, list[float]], ids: dict[str, list[int]]) -> None:
        self.pace = pace  # method -> time per token of its 1st, 2nd, … timed run
        self.ids = ids
        self.asked: list[tuple[str, int]] = []
        self.open = 0

    def stream(self, prompt: str, config: DecodeConfig) -> Generator[Event, None, None]:
        self.asked.append((config.method, config.max_new_tokens))
        self.open += 1
        try:
            yield from self._events(config)
        finally:
            self.open -= 1

    def _events(self, config: DecodeConfig) -> Generator[Event, None, None]:
        timed = [a for a in self.asked if a == (config.method, 10)]
        pace = self.pace[config.method][max(0, len(timed) - 1)]
        yield Started(
            method=config.method, rule=config.rule, num_prompt_tokens=1, seed=1,
            max_new_tokens=config.max_new_tokens, models={}, dtype="float32", device="cpu",
        )  # fmt: skip
        ids = self.ids[config.method][: config.max_new_tokens]
        for index, token_id in enumerate(ids):
            token = Token(
                id=token_id, text=f" {token_id}", origin=Origin.TARGET, position=1 + index,
                target_prob=1.0,
            )  # fmt: skip
            yield Step(
                index=index, tokens=(token,), rejected=(), stages=(), gamma=0, draft_ms=0.0,
                verify_ms=pace, elapsed_ms=5.0 + pace * index, cache_tokens={Role.TARGET: 1},
                cache_bytes={Role.TARGET: 100, Role.DRAFT: 11},
            )  # fmt: skip
        yield Finished(reason="length", text="", num_tokens=len(ids), elapsed_ms=1.0)


def columns(*methods: str) -> list[Column]:
    return [
        Column(name=name, config=DecodeConfig(method=name, max_new_tokens=10))  # type: ignore[arg-type]
        for name in methods
    ]


SAME = list(range(10))


def finish(engine: Scripted, repeats: int = 1, methods: tuple[str, ...] = ()) -> Compared:
    methods = methods or ("autoregressive", "speculative")
    *_, last = compare(engine, "x", columns(*methods), repeats)
    assert isinstance(last, Compared)
    return last


def test_the_speedup_is_the_ratio_of_decode_times() -> None:
    engine = Scripted(
        {"autoregressive": [10.0], "speculative": [4.0]},
        {"autoregressive": SAME, "speculative": SAME},
    )
    done = finish(engine)
    assert done.against[0].speedup["median"] == pytest.approx(2.5)
    assert done.against[0].first_difference is None
    assert done.recordings[0].decode_ms == pytest.approx(90.0)
    assert done.recordings[1].cache_bytes == 111
    assert [token for token in done.recordings[1].token_ids] == SAME


def test_every_method_is_warm_before_any_run_and_runs_follow_each_other() -> None:
    engine = Scripted(
        {"autoregressive": [10.0] * 3, "speculative": [4.0] * 3, "cascade": [5.0] * 3},
        {"autoregressive": SAME, "speculative": SAME, "cascade": SAME},
    )
    methods = ("autoregressive", "speculative", "cascade")
    for _ in compare(engine, "x", columns(*methods), 2):
        assert engine.open <= 1
    assert [method for method, n in engine.asked[:3]] == list(methods)
    assert all(n < 10 for _, n in engine.asked[:3])
    assert [method for method, _ in engine.asked[3:]] == [*methods, *reversed(methods)]


def test_the_median_of_the_repeats_is_shown_and_replayed() -> None:
    engine = Scripted(
        {"autoregressive": [10.0, 10.0, 10.0], "speculative": [10.0, 5.0, 2.0]},
        {"autoregressive": SAME, "speculative": SAME},
    )
    done = finish(engine, repeats=3)
    assert done.against[0].speedups == pytest.approx((1.0, 2.0, 5.0))
    assert done.against[0].speedup["median"] == pytest.approx(2.0)
    assert done.recordings[1].stats.tpot_ms == pytest.approx(5.0)
    assert done.repeats == 3


def test_where_texts_part_is_the_first_token_that_differs() -> None:
    other = [*SAME[:7], 99, *SAME[8:]]
    engine = Scripted(
        {"autoregressive": [1.0], "speculative": [1.0]},
        {"autoregressive": SAME, "speculative": other},
    )
    assert finish(engine).against[0].first_difference == 7


def test_closing_it_closes_the_run() -> None:
    engine = Scripted(
        {"autoregressive": [1.0], "speculative": [1.0]},
        {"autoregressive": SAME, "speculative": SAME},
    )
    messages = compare(engine, "x", columns("autoregressive", "speculative"))
    seen = [next(messages) for _ in range(25)]
    assert engine.open == 1
    last = seen[-1]
    assert isinstance(last, Progress) and last.column == "autoregressive" and last.total == 2
    messages.close()
    assert engine.open == 0


def test_too_short_a_text_is_refused_with_its_column() -> None:
    engine = Scripted(
        {"autoregressive": [1.0], "speculative": [1.0]},
        {"autoregressive": SAME, "speculative": [1]},
    )
    with pytest.raises(ConfigError, match="speculative gave 1 token"):
        finish(engine)
    with pytest.raises(ConfigError, match="repeats"):
        finish(engine, repeats=0)
