"""What all tests share: a quiet offline environment, one thread, and the folder of longer texts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch, tokenizers or gradio are first imported. One thread, so that sums round the same
# way on every machine and the models under test do not fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
if not os.environ.get("FASTINFER_TEST_HUB"):
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with a reason, what this machine can't run."""
    if not os.environ.get("FASTINFER_TEST_HUB"):
        _skip(items, "hub", "needs the Hugging Face Hub: set FASTINFER_TEST_HUB=1 to run it")
    if not os.environ.get("FASTINFER_TEST_REAL"):
        _skip(items, "real", "downloads 93 MB from PyPI: make test-real runs it")
    if any(item.get_closest_marker("gpu") for item in items) and not _has_gpu():
        _skip(items, "gpu", "no CUDA device on this machine")


def _skip(items: list[pytest.Item], marker: str, reason: str) -> None:
    for item in items:
        if item.get_closest_marker(marker):
            item.add_marker(pytest.mark.skip(reason=reason))


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415 - seconds, wanted only where a test is marked `gpu`

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of longer texts (`heldout/*.txt`, …) that FASTINFER_TEST_DATA names, or a skip."""
    named = os.environ.get("FASTINFER_TEST_DATA", "")
    if not named:
        pytest.skip("FASTINFER_TEST_DATA names no folder with longer texts")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"FASTINFER_TEST_DATA={named} is not a folder")
    return folder
