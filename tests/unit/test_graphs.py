"""The bookkeeping of graphs, with a capture that records operations instead."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from tape import TapeCapture

from fastinfer.models.graphs import CudaCapture, Graphs


def test_a_key_is_recorded_once_and_replayed_every_time() -> None:
    capture, counter = TapeCapture(), torch.zeros(1)
    graphs = Graphs(capture)

    def step() -> None:
        counter.add_(1)

    for _ in range(3):
        counter.zero_()
        graphs.run(("block", 1), step)
    assert (capture.recordings, capture.replays, len(graphs)) == (1, 3, 1)
    graphs.run(("block", 2), step)
    assert (capture.recordings, capture.replays, len(graphs)) == (2, 4, 2)


def test_a_prepared_key_needs_no_recording_later() -> None:
    capture, counter = TapeCapture(), torch.zeros(1)
    graphs = Graphs(capture)
    for _ in range(2):
        graphs.prepare(7, lambda: counter.add_(1))
    assert (capture.recordings, capture.replays) == (1, 0)
    counter.zero_()
    graphs.run(7, lambda: pytest.fail("it is recorded: nobody calls the step again"))
    assert counter.item() == 1


def test_a_step_that_cannot_be_recorded_runs_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    attempts = 0

    def refuse(step: Callable[[], None]) -> Callable[[], None]:
        nonlocal attempts
        attempts += 1
        raise RuntimeError("out of memory")

    graphs, counter = Graphs(refuse), torch.zeros(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            graphs.run("key", lambda: counter.add_(1))
    assert (attempts, counter.item()) == (1, 3.0)
    (record,) = caplog.records
    assert "no CUDA graph for key" in record.message and "out of memory" in record.message


def test_the_tape_refuses_what_a_graph_cannot_record() -> None:
    value = torch.ones(1)
    with pytest.raises(RuntimeError, match="capturing"):
        TapeCapture()(lambda: None if value.item() else value.zero_())


def test_the_tape_fixes_what_came_from_python() -> None:
    number, value = 1, torch.zeros(1)

    def step() -> None:
        value.add_(number)

    replay = TapeCapture()(step)
    value.zero_()
    number = 100
    replay()
    assert value.item() == 1


@pytest.mark.gpu
def test_a_real_graph_follows_its_tensors() -> None:
    device = torch.device("cuda")
    source, result = torch.ones(1, device=device), torch.zeros(1, device=device)
    graphs = Graphs(CudaCapture(device))
    for value in (1.0, 2.0, 3.0):
        source.fill_(value)
        graphs.run("key", lambda: torch.mul(source, 2, out=result))
        assert result.item() == 2 * value
    assert len(graphs) == 1
