"""The package's public names, and that a light one stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fastinfer
from fastinfer import config, engine, events


def test_every_public_name_is_the_one_of_its_module() -> None:
    for name in fastinfer.__all__:
        homes = [m for m in (config, events, engine) if hasattr(m, name)]
        assert getattr(fastinfer, name) is getattr(homes[0], name)
    assert fastinfer.load is engine.load


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = fastinfer.laod  # type: ignore[attr-defined]


def test_a_config_costs_no_torch() -> None:
    script = "import fastinfer, sys; fastinfer.DecodeConfig(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
