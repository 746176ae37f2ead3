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
from fastinfer.models.half_matrix import has_kernel
from fastinfer.models.sources import find
from fastinfer.models.transformer import covers

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
    element = _Element.of(dtype, device)
    free = free_bytes(device)
    return tuple(_entry(preset, element, free) for preset in PRESETS.values())


@dataclass(frozen=True, slots=True)
class _Element:
    """Bytes of a parameter in memory."""

    plain: int
    halved: int  # of a checkpoint in 16 bits that our own decoder runs

    @classmethod
    def of(cls, dtype: str, device: str) -> _Element:
        place = choose_device(device)
        plain = choose_dtype(dtype, place).itemsize
        return cls(plain, 2 if place.type == "cpu" and has_kernel() else plain)


def _entry(preset: Preset, element: _Element, free: int | None) -> Entry:
    places = {role: _place(preset, role) for role in preset.models}
    missing = [model for role, model in preset.models.items() if places[role] == "download"]
    weights = preset.num_parameters * (element.halved if preset.own_decoder else element.plain)
    needed = int(weights * OVERHEAD)
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
    element = _Element.of(dtype, device)
    return int(sum(_weight_bytes(folder, element) for folder in folders) * OVERHEAD)


def _weight_bytes(folder: Path, element: _Element) -> int:
    ours, total = covers(folder), 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                held = tensors.get_slice(name)
                halved = ours and held.get_dtype() in ("F16", "BF16")
                total += prod(held.get_shape()) * (element.halved if halved else element.plain)
    return total
