"""The queue: turns in order, a bound, places given up, and an engine in it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fastinfer.config import DecodeConfig
from fastinfer.http.line import InLine, Line, LineFull
from tests.browser.fake_engine import FakeEngine


def test_turns_come_one_at_a_time_in_order() -> None:
    line = Line(max_waiting=2)
    first, second, third = line.join(), line.join(), line.join()
    assert [p.turn.done() for p in (first, second, third)] == [True, False, False]
    assert (line.num_running, line.num_waiting) == (1, 2)
    first.leave()
    assert [p.turn.done() for p in (second, third)] == [True, False]
    first.leave()  # a second time changes nothing
    assert not third.turn.done()
    second.leave()
    third.leave()
    assert (line.num_running, line.num_waiting) == (0, 0)


def test_one_more_than_may_wait_is_refused_and_told_when_to_come_back() -> None:
    line = Line(max_waiting=1)
    holder, waiting = line.join(), line.join()
    with pytest.raises(LineFull) as caught:
        line.join()
    assert caught.value.retry_after_s >= 1
    line.join(always=True)
    waiting.leave()
    holder.leave()


def test_none_may_wait() -> None:
    line = Line(max_waiting=0)
    place = line.join()
    with pytest.raises(LineFull):
        line.join()
    place.leave()
    line.join()


def test_who_leaves_while_waiting_is_passed_over() -> None:
    line = Line(max_waiting=5)
    holder, leaver, cancelled, last = (line.join() for _ in range(4))
    leaver.leave()
    cancelled.turn.cancel()
    holder.leave()
    assert last.turn.done() and not leaver.turn.done()


def test_a_coroutine_that_is_cancelled_while_waiting_holds_nobody_up() -> None:
    async def scene() -> bool:
        line = Line(max_waiting=5)
        holder = line.join()
        place = line.join()
        task = asyncio.ensure_future(asyncio.wrap_future(place.turn))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        last = line.join()
        holder.leave()
        return last.turn.done()

    assert asyncio.run(scene())


def test_the_page_waits_for_its_turn_and_frees_it() -> None:
    line = Line(max_waiting=0)  # the page is let in even so
    holder = line.join()
    engine = FakeEngine(("a",))
    stream = InLine(engine, line).stream("x", DecodeConfig(max_new_tokens=2))
    got = []
    reader = threading.Thread(target=lambda: got.extend(stream), daemon=True)
    reader.start()
    reader.join(timeout=0.2)
    assert not got and engine.open_streams == 0
    holder.leave()
    reader.join(timeout=30)
    assert len(got) == 4  # started, two steps, finished
    assert line.num_running == 0


def test_a_closed_stream_frees_the_turn() -> None:
    line = Line(max_waiting=0)
    engine = FakeEngine(("a",))
    in_line = InLine(engine, line)
    stream = in_line.stream("x", DecodeConfig())
    next(stream)
    assert line.num_running == 1 and in_line.info is engine.info
    stream.close()
    assert line.num_running == 0 and engine.open_streams == 0
