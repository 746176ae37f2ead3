"""The machine and the libraries of a measurement: no figure is worth anything without them."""

from __future__ import annotations

import datetime
import os
import platform
import resource
import sys
from importlib import metadata
from pathlib import Path

import torch

LIBRARIES = ("torch", "transformers", "gradio", "flashspec", "llama-cpp-python")


def environment() -> dict[str, object]:
    """Processor, threads, memory, versions, date; JSON-ready."""
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: version for name in LIBRARIES if (version := _version(name))},
    }


def peak_memory_bytes() -> int:
    """The most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


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
