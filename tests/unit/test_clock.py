"""What is on a request's clock, and what is not."""

from __future__ import annotations

import threading

import pytest

from fastinfer import clock as module
from fastinfer.clock import Clock


class Time:
    """Seconds that pass when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "perf_counter", lambda: self.now)


def test_only_what_is_inside_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    time, turn = Time(monkeypatch), threading.Lock()
    clock = Clock(0.5, turn)
    time.now += 7
    with clock:
        assert turn.locked()
        time.now += 1
        assert clock.elapsed_ms() == 1500.0
        with clock.paused():
            assert turn.locked()
            time.now += 9
            assert clock.elapsed_ms() == 1500.0
        time.now += 2
    time.now += 11
    assert not turn.locked() and clock.elapsed_ms() == 3500.0


@pytest.mark.parametrize("paused", [False, True])
def test_a_failure_gives_the_turn_back(monkeypatch: pytest.MonkeyPatch, paused: bool) -> None:
    time, turn = Time(monkeypatch), threading.Lock()
    clock = Clock(0.0, turn)
    with pytest.raises(ValueError, match="bad"), clock:
        time.now += 1
        if paused:
            with clock.paused():
                time.now += 4
                raise ValueError("bad")
        raise ValueError("bad")
    assert not turn.locked() and clock.elapsed_ms() == 1000.0
