"""`serve` in a process of its own, for scripts and tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Served:
    """A server that answers at `url`."""

    process: subprocess.Popen[str]
    url: str


@contextmanager
def serving(*options: str, **environment: str) -> Iterator[Served]:
    """`python -m fastinfer serve` with these options, on a free port.

    Raises `RuntimeError` with what it said, where it does not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "fastinfer", "serve", "--port", "0", *options],
        cwd=ROOT, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = ""  # large weights say how far they are, on lines before
        for line in process.stderr:
            said += line
            if "fastinfer serves " in line:
                break
        else:
            raise RuntimeError(f"the server did not start: {said}")
        yield Served(process, said.split()[-1])
    finally:
        process.kill()
        process.wait()
