"""Torch's threads: whose work ends with its thread, and how many there are."""

from __future__ import annotations

import threading

import pytest
import torch

from fastinfer.models.apart import apart
from fastinfer.models.devices import core_leaver


def test_work_apart_is_over_with_its_thread() -> None:
    threads: list[threading.Thread] = []

    def work() -> int:
        threads.append(threading.current_thread())
        return 7

    assert apart(work) == 7
    assert threads[0] is not threading.current_thread() and not threads[0].is_alive()


def test_what_fails_apart_fails_here() -> None:
    def work() -> int:
        raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason"):
        apart(work)


@pytest.mark.parametrize(
    ("before", "variable", "inside"), [(4, None, 3), (2, None, 1), (1, None, 1), (4, "4", 4)]
)
def test_a_core_is_left_to_the_browser(
    monkeypatch: pytest.MonkeyPatch, before: int, variable: str | None, inside: int
) -> None:
    numbers = [before]
    monkeypatch.setattr(torch, "get_num_threads", lambda: numbers[-1])
    monkeypatch.setattr(torch, "set_num_threads", numbers.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    around = core_leaver()
    with around():
        assert numbers[-1] == inside
        with around():  # a job that begins while a stopped one still finishes its round
            assert numbers[-1] == inside
    assert numbers[-1] == before
