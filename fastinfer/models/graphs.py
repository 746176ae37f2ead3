"""CUDA graphs: a step of many small kernels, recorded once and launched as one.

What a graph is recorded for is named by a key (block length and bucket); this file knows nothing of
models. A graph works on the very tensors that it was recorded with: whoever replaces one of them
begins with new `Graphs`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable

import torch

logger = logging.getLogger(__name__)

# Runs before a recording: libraries set up their workspaces then, which a recording can't.
WARM_UPS = 2

Step = Callable[[], None]

# Records a step; what it returns runs the same work again on the same tensors.
Capture = Callable[[Step], Step]


class CudaCapture:
    """Records on a side stream; all graphs share one memory pool, since they never run at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, step: Step) -> Step:
        """Warm up and record. Raises RuntimeError where something in `step` can't be recorded."""
        current = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    step()
            # Other threads may go on using the device meanwhile, hence thread_local.
            with torch.cuda.graph(
                graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                step()
        finally:
            # A recording that failed leaves the side stream as the current one.
            torch.cuda.set_stream(current)
            current.wait_stream(self._stream)
        return graph.replay


class Graphs:
    """The recorded steps of one set of tensors, by key."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._steps: dict[Hashable, Step] = {}

    def prepare(self, key: Hashable, step: Step) -> None:
        """Record `step` unless that key is recorded. It runs, but leaves nothing that counts.

        A step that can't be recorded is logged and from then on run as it is.
        """
        if key in self._steps:
            return
        try:
            self._steps[key] = self._capture(step)
        except RuntimeError as error:
            logger.warning("no CUDA graph for %s, which runs without one: %s", key, error)
            self._steps[key] = step

    def run(self, key: Hashable, step: Step) -> None:
        """Run the step from its recording, recording it first where need be."""
        self.prepare(key, step)
        self._steps[key]()

    def __len__(self) -> int:
        return len(self._steps)
