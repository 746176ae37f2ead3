"""Examples that set several fields at one click. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastinfer.ui.form import FIELDS, form_values

EXAMPLES = Path(__file__).resolve().parents[2] / "assets" / "examples.json"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A prompt and the options that show something with it, under their flat names."""

    name: str
    prompt: str
    options: Mapping[str, Any]


def load_presets(path: Path = EXAMPLES) -> tuple[Preset, ...]:
    """The bundled examples, in order."""
    entries = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Preset(name=entry["name"], prompt=entry["prompt"], options=entry.get("set", {}))
        for entry in entries
    )


def fields_of(presets: tuple[Preset, ...]) -> tuple[str, ...]:
    """Fields that some preset sets. A click sets all of these, those not named as the page opens,
    and leaves the others as the visitor has them.
    """
    return tuple(name for name in FIELDS if any(name in preset.options for preset in presets))


def row_of(preset: Preset, fields: tuple[str, ...]) -> dict[str, Any]:
    """The values of these fields after a click."""
    values = form_values(preset.options)
    return {name: values[name] for name in fields}
