"""Presets: what they hold, what is here, what fits; and the two commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from huggingface_hub.utils import validate_repo_id

from fastinfer import cli
from fastinfer.config import ConfigError
from fastinfer.events import Role
from fastinfer.models import devices, inventory
from fastinfer.models.catalog import BUNDLED, PRESETS, preset_named
from fastinfer.models.devices import choose_device, free_bytes
from fastinfer.models.hub import Fetched, parse
from fastinfer.models.inventory import OVERHEAD, needed_bytes
from fastinfer.models_cli import Bars, size

ISSUED = {"nano", "pythia", "pythia-small", "smollm2", "smollm2-135m", "qwen2.5", "llama2", "bloom"}


def test_every_preset_that_was_asked_for_is_there() -> None:
    assert set(PRESETS) == ISSUED
    with pytest.raises(ConfigError, match="preset: must be one of nano"):
        preset_named("giant")


@pytest.mark.parametrize("preset", PRESETS.values(), ids=str)
def test_a_preset_is_complete(preset: inventory.Preset) -> None:
    assert Role.TARGET in preset.models
    assert preset.licences
    sizes = [preset.models[role].num_parameters for role in Role if role in preset.models]
    assert sizes == sorted(sizes), "draft, intermediate, target"
    for model in preset.models.values():
        if preset.bundled:
            assert model.download_bytes == 0
            continue
        repo = parse(model.source)
        validate_repo_id(repo.name)
        assert repo.revision == "main" or re.fullmatch(r"[0-9a-f]{40}", repo.revision)
        # 16 bits a parameter; old Pythias carry their causal masks as well.
        assert 1.9 < model.download_bytes / model.num_parameters < 2.5


@pytest.fixture(params=[True, False], ids=["float16 kept", "nothing halved"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(inventory, "has_kernel", lambda: request.param)
    return bool(request.param)


def test_the_bundled_sizes_are_the_real_ones(kernel: bool) -> None:
    element = 2 if kernel else 4
    for role, model in PRESETS["nano"].models.items():
        folder = BUNDLED / "nano" / role.value
        needed = int(model.num_parameters * element * OVERHEAD)
        assert needed_bytes([folder], "float32", "cpu") == needed


def test_what_is_here_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = PRESETS["pythia"].models[Role.DRAFT].source

    def find(role: Role, name: str) -> Path | None:
        return Path("/cache") if name == here else None

    monkeypatch.setattr(inventory, "find", find)
    monkeypatch.setattr(inventory, "free_bytes", lambda device: 4_000_000_000)
    entries = {entry.preset.name: entry for entry in inventory.inventory("cpu", "bfloat16")}
    pythia = entries["pythia"]
    assert list(pythia.places.values()) == ["here", "download", "download"]
    assert pythia.download_bytes == 911_000_000 + 5_684_000_000
    assert pythia.fits is False
    assert entries["pythia-small"].fits is True
    assert set(entries["nano"].places.values()) == {"bundled"}
    assert entries["nano"].download_bytes == 0
    monkeypatch.setattr(inventory, "free_bytes", lambda device: None)
    assert {entry.fits for entry in inventory.inventory("cpu")} == {None}


def test_float32_takes_twice_the_memory_where_nothing_is_kept_in_float16(kernel: bool) -> None:
    """And always through transformers."""
    small, large = (inventory.inventory("cpu", dtype) for dtype in ("bfloat16", "float32"))
    for entry, wide in zip(small, large, strict=True):
        times = 2 if not kernel or entry.preset.name == "bloom" else 1
        assert wide.memory_bytes == pytest.approx(times * entry.memory_bytes, abs=2)


def test_the_command_lists_every_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "--device", "cpu"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].split() == [
        "preset", "roles", "here", "download", "memory", "fits", "kind", "licence"
    ]  # fmt: skip
    assert {line.split()[0] for line in lines[1::2]} == ISSUED
    assert "gated" in next(line for line in lines if line.startswith("llama2"))
    assert cli.main(["models", "--device", "warp"]) == 2


def test_download_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["download"]) == 2
    assert capsys.readouterr().err.startswith("error: preset: is missing: give --preset PRESET")
    assert cli.main(["download", "--preset", "giant"]) == 2
    assert "must be one of nano" in capsys.readouterr().err


def test_download_of_what_is_here_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["download", "--preset", "nano"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        str(BUNDLED / "nano" / role) for role in ("draft", "intermediate", "target")
    ]
    assert err == ""


def test_a_bar_per_model_and_a_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    with Bars() as bars:
        bars(Fetched(name="a/b", done_bytes=1_000_000, total_bytes=4_000_000))
        bars(Fetched(name="a/b", done_bytes=4_000_000, total_bytes=4_000_000))
        bars(Fetched(name="c/\x1b[2Jd", done_bytes=5, total_bytes=10))
        bars(Fetched(name="wheel", note="1/3 fetching"))
    err = capsys.readouterr().err
    assert "a/b: 100%" in err
    assert "4.00M/4.00M" in err
    assert err.endswith("1/3 fetching\n")
    assert "\x1b[2J" not in err


def test_sizes_for_people() -> None:
    assert [size(n) for n in (93_400_000, 5_684_000_000)] == ["93 MB", "5.7 GB"]


# --- memory -------------------------------------------------------------------------------------


def test_a_container_s_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "CGROUP", tmp_path)
    free = free_bytes("cpu")
    assert free is None or free > 0
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert free_bytes("cpu") == 3000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes("cpu") != 3000


# --- a model beyond one GPU ---------------------------------------------------------------------


def test_split_needs_a_gpu_and_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: split spreads the target over GPUs"):
        choose_device("split")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("split") == torch.device("cuda", 0)
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="device: split needs the package accelerate"):
        choose_device("split")
