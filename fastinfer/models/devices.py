"""Where models run and in which dtype, and how much memory there is for them."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch

from fastinfer.config import DTYPES, ConfigError

SPLIT = "split"  # a device's name: the target over all GPUs, and the rest in main memory

CGROUP = Path("/sys/fs/cgroup")


def choose_device(device: str) -> torch.device:
    """`auto` is the first GPU where there is one, else the CPU.

    `split` is the first GPU as well: there everything runs but a target that is larger than it.
    """
    if device == SPLIT:
        return _first_of_split()
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(
            "device", f"must be auto, cpu, or a device that this machine has, not {device!r}"
        ) from None
    return chosen


def _first_of_split() -> torch.device:
    if not torch.cuda.is_available():
        raise ConfigError(
            "device", "split spreads the target over GPUs, and this machine has none; use auto"
        )
    if importlib.util.find_spec("accelerate") is None:
        raise ConfigError(
            "device",
            "split needs the package accelerate; install it with: python -m pip install accelerate",
        )
    return torch.device("cuda", 0)


def core_leaver() -> Callable[[], AbstractContextManager[None]]:
    """What work is put in so that torch has a core less for it, unless OMP_NUM_THREADS is set.

    All threads wait for the last in each operation. Where a browser draws on the same cores it
    stops one of them for milliseconds: with two threads on two cores a token took four times as
    long as with one. Of how many cores one is left is settled here, not inside, where other work
    may have a core less already.
    """
    total = torch.get_num_threads()
    if total == 1 or "OMP_NUM_THREADS" in os.environ:
        return nullcontext

    @contextmanager
    def left() -> Iterator[None]:
        torch.set_num_threads(total - 1)
        try:
            yield
        finally:
            torch.set_num_threads(total)  # a new thread begins with the number that was set last

    return left


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware computes in it, else float32.

    Never float16: small Pythias overflow in it.
    """
    if dtype not in DTYPES:
        raise ConfigError("dtype", f"must be one of {', '.join(DTYPES)}, not {dtype!r}")
    if dtype != "auto":
        return torch.float32 if dtype == "float32" else torch.bfloat16
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if device.type == "cpu" and cpu_has_bfloat16() else torch.float32


def cpu_has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware (AVX512-BF16 or AMX)."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(_cpu_flags())


def cpu_has_matrix_units() -> bool:
    """Whether it does so in units made for whole matrices (AMX)."""
    return "amx_bf16" in _cpu_flags()


def _cpu_flags() -> frozenset[str]:
    """What Linux says that the processor can do, as far as torch makes use of it."""
    if "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return frozenset()
    info = Path("/proc/cpuinfo")
    return frozenset(info.read_text().split() if info.exists() else ())


def release() -> None:
    """Give back what objects that are gone have left behind."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def free_bytes(name: str) -> int | None:
    """Memory for weights on a device by its name, or None where the system does not say."""
    device = choose_device(name)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    known = [value for value in (_available_bytes(), _container_bytes()) if value is not None]
    return min(known, default=None)


def _available_bytes() -> int | None:
    """What Linux could give a new program without swapping."""
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    for line in info.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _container_bytes() -> int | None:
    """What is left under the limit of a container, where it has one."""
    limit, used = CGROUP / "memory.max", CGROUP / "memory.current"
    if not (limit.exists() and used.exists()):
        return None
    text = limit.read_text().strip()
    return None if text == "max" else max(0, int(text) - int(used.read_text()))
