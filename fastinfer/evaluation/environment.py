"""The machine and the libraries of a measurement: no figure is worth anything without them."""

from __future__ import annotations

import datetime
import os
import platform
import resource
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import torch

LIBRARIES = ("fastinfer", "torch", "transformers", "tokenizers", "flashspec", "llama-cpp-python")
STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")

T = TypeVar("T")


def environment() -> dict[str, object]:
    """Processor, threads, memory, versions, date; JSON-ready."""
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": _memory(),
        "gpu": gpu,
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: version for name in LIBRARIES if (version := _version(name))},
    }


def peak_memory_bytes() -> int:
    """The most memory that this process has held so far, everything included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def with_memory(run: Callable[[], T]) -> tuple[T, int | None]:
    """The result of `run`, and the memory that it held at its peak on top of what was there.

    With models on a GPU the card's memory, else the process's. None where the system can't start a
    new peak.
    """
    if torch.cuda.is_available() and torch.cuda.memory_allocated():  # the models are there
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        result = run()
        return result, torch.cuda.max_memory_allocated() - held
    before = _start_peak()
    result = run()
    return result, None if before is None else max(0, _status("VmHWM") - before)


def _start_peak() -> int | None:
    """Start a new peak at what the process holds now, and say how much that is."""
    try:
        CLEAR_REFS.write_text("5")
        return _status("VmRSS")
    except OSError:
        return None


def _status(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {field} in {STATUS}")


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
