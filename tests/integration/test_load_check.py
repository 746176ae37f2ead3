"""The load check in short, a few clients for some seconds. The script is the long one."""

from __future__ import annotations

import pytest

from scripts.load_check import GROWTH_BYTES, Plan, check, growth, holds

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MB = 1_000_000


def test_a_short_check_holds() -> None:
    document = check(Plan(clients=8, seconds=8.0, max_waiting=4, leavers=24))
    load, leaving = document["under_load"], document["hanging_up"]
    assert load["errors"] == {} and load["answers"] > 8 and load["refused_429"] > 0
    assert len(load["answers_by_route"]) == 4
    assert leaving["all_at_once"]["running"] == 1 and leaving["all_at_once"]["waiting"] == 23
    # A busy machine may be slow to notice; the long run asks for one second.
    assert max(leaving[part]["freed_s"] for part in ("mid_stream", "all_at_once")) < 5
    assert leaving["answers_after"]
    assert leaving["open_files"]["after"] <= leaving["open_files"]["before"] + 2


def test_memory_that_grows_does_not_hold() -> None:
    level = [(float(second), 500 * MB + second) for second in range(121)]
    grown = [(at, size + int(at) * MB) for at, size in level]
    for memory, good in ((level, True), (grown, False)):
        found = growth(memory, 30.0)
        assert (found["rss_growth_bytes"] <= GROWTH_BYTES) is good
        assert holds({"errors": {}, "answers": 1, "seconds": 120.0, **found}) is good


def test_an_error_or_no_answer_does_not_hold() -> None:
    good = {"errors": {}, "answers": 1, "seconds": 8.0}
    assert holds(good)
    assert not holds({**good, "errors": {"status 500": 1}})
    assert not holds({**good, "answers": 0})
