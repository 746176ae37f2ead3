"""A stand-in for CUDA graphs that runs anywhere: it records operations, and runs them again.

As in a graph, what came from Python while recording (numbers, shapes, branches) is fixed from then
on, and only what lies in tensors can change. An operation that reads a tensor's value in Python is
refused, since a graph could not record it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

READS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal"}


class Recorder(TorchDispatchMode):
    """Runs operations and notes them."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []  # they hold on to every tensor: ids stay

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        if func._schema.name in READS:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    def replay(self) -> None:
        """The same operations, on what the tensors hold now."""
        now: dict[int, Tensor] = {}

        def current(value: Any) -> Any:
            return now.get(id(value), value) if isinstance(value, Tensor) else value

        with torch.inference_mode():
            for func, args, kwargs, result in self.calls:
                again = func(*tree_map(current, args), **tree_map(current, kwargs))
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor):
                        now[id(old)] = new

    def shapes(self) -> list[tuple[str, list[Any]]]:
        """Every operation with its arguments, tensors as their shapes."""
        return [
            (str(func), [tuple(a.shape) if isinstance(a, Tensor) else a for a in tree_leaves(args)])
            for func, args, _, _ in self.calls
        ]


class TapeCapture:
    """A `Capture`. Warms up once, as real ones do."""

    def __init__(self) -> None:
        self.recordings = 0
        self.replays = 0

    def __call__(self, step: Callable[[], None]) -> Callable[[], None]:
        step()
        recorder = Recorder()
        with recorder:
            step()
        self.recordings += 1

        def replay() -> None:
            self.replays += 1
            recorder.replay()

        return replay
