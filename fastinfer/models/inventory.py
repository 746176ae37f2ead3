"""What of the presets is on this machine, what the rest costs, and what fits into its memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Literal

from safetensors import safe_open

from fastinfer.events import Role
from fastinfer.models.catalog import PRESETS, Preset
from fastinfer.models.devices import choose_device, choose_dtype, free_bytes
from fastinfer.models.sources import find

Place = Literal["bundled", "here", "download"]

# Beside the weights: caches, scratch memory, the tokenizers. Measured peaks stay below it.
OVERHEAD = 1.3


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One preset as this machine has it."""

    preset: Preset
    places: dict[Role, Place]
    download_bytes: int  # of what is not here
    memory_bytes: int  # to run it, weights and room beside them
    fits: bool | None  # None: the system does not say how much is free


def inventory(device: str = "auto", dtype: str = "auto") -> tuple[Entry, ...]:
    """Every preset; asks nobody outside this machine."""
    element = choose_dtype(dtype, choose_device(device)).itemsize
    free = free_bytes(device)
    return tuple(_entry(preset, element, free) for preset in PRESETS.values())


def _entry(preset: Preset, element_bytes: int, free: int | None) -> Entry:
    places = {role: _place(preset, role) for role in preset.models}
    missing = [model for role, model in preset.models.items() if places[role] == "download"]
    needed = int(preset.weight_bytes(element_bytes) * OVERHEAD)
    return Entry(
        preset=preset,
        places=places,
        download_bytes=sum(model.download_bytes for model in missing),
        memory_bytes=needed,
        fits=None if free is None else needed <= free,
    )


def _place(preset: Preset, role: Role) -> Place:
    if preset.bundled:
        return "bundled"
    return "here" if find(role, preset.models[role].source) is not None else "download"


def needed_bytes(folders: Iterable[Path], dtype: str = "auto", device: str = "auto") -> int:
    """Memory that the models of these folders take, by their files' headers."""
    element = choose_dtype(dtype, choose_device(device)).itemsize
    return int(sum(map(_num_parameters, folders)) * element * OVERHEAD)


def _num_parameters(folder: Path) -> int:
    count = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            count += sum(prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
    return count
