"""The engine's own thread, and how its items are grouped."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from fastinfer.ui.throttle import Worker


def numbers(count: int, pace_s: float = 0.0) -> Generator[int, None, None]:
    for number in range(count):
        time.sleep(pace_s)
        yield number


def test_batches_keep_every_item_in_order() -> None:
    batches = list(Worker[int](update_s=0.02).batches(numbers(300, 0.0005)))
    assert [n for batch in batches for n in batch] == list(range(300))
    assert 1 < len(batches) < 300


def test_a_fast_job_is_not_yielded_item_by_item() -> None:
    batches = list(Worker[int](update_s=10).batches(numbers(1000)))
    assert len(batches) <= 2  # the first item at once, the rest at the end


@pytest.mark.parametrize("stopped", [False, True])
def test_a_job_runs_within_what_is_put_around_it(stopped: bool) -> None:
    seen: list[tuple[str, int]] = []

    @contextmanager
    def around() -> Iterator[None]:
        seen.append(("in", threading.get_ident()))
        try:
            yield
        finally:
            seen.append(("out", threading.get_ident()))
            left.set()

    def job() -> Generator[int, None, None]:
        for number in range(100):
            seen.append(("job", threading.get_ident()))
            time.sleep(0.001)
            yield number

    left = threading.Event()
    batches = Worker[int](update_s=0.01, around=around).batches(job())
    next(batches)
    batches.close() if stopped else list(batches)
    assert left.wait(5)
    assert [name for name, _ in seen] == ["in", *["job"] * (len(seen) - 2), "out"]
    assert len({thread for _, thread in seen} - {threading.get_ident()}) == 1


def test_silence_gives_empty_batches() -> None:
    release = threading.Event()

    def silent() -> Generator[int, None, None]:
        release.wait(5)
        yield 1

    batches = Worker[int](heartbeat_s=0.01).batches(silent())
    assert next(batches) == [] and next(batches) == []
    release.set()
    assert [n for batch in batches for n in batch] == [1]


def test_the_job_runs_and_is_closed_in_its_own_thread() -> None:
    threads: list[str] = []
    closed = threading.Event()

    def job() -> Generator[int, None, None]:
        try:
            while True:
                threads.append(threading.current_thread().name)
                time.sleep(0.001)
                yield 1
        finally:
            threads.append(threading.current_thread().name)
            closed.set()

    batches = Worker[int](update_s=0.01).batches(job())
    next(batches)
    batches.close()
    assert closed.wait(5)
    assert set(threads) == {"engine"}


def test_an_error_arrives_after_the_items_before_it() -> None:
    def job() -> Generator[int, None, None]:
        yield 1
        yield 2
        raise RuntimeError("broken")

    seen: list[int] = []
    with pytest.raises(RuntimeError, match="broken"):
        for batch in Worker[int]().batches(job()):
            seen.extend(batch)
    assert seen == [1, 2]


def test_one_job_at_a_time() -> None:
    worker = Worker[int](update_s=0.0, heartbeat_s=0.01)
    inside: list[int] = []
    most: list[int] = []

    def job() -> Generator[int, None, None]:
        inside.append(1)
        most.append(len(inside))
        try:
            yield from numbers(20, 0.001)
        finally:
            inside.pop()

    def read() -> None:
        for _ in worker.batches(job()):
            pass

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(10)
    assert len(most) == 4 and max(most) == 1


def test_a_job_stopped_before_its_turn_never_runs() -> None:
    worker = Worker[int](heartbeat_s=0.01)
    started = threading.Event()

    def never() -> Generator[int, None, None]:
        started.set()
        yield 1

    first = worker.batches(numbers(50, 0.005))
    next(first)
    second = worker.batches(never())
    assert next(second) == []  # waiting for its turn
    second.close()
    assert [n for batch in first for n in batch][-1] == 49
    list(worker.batches(numbers(1)))  # takes the turn after the stopped one
    assert not started.is_set()
