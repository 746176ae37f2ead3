"""Peers of a benchmark: who can take part, and what each is asked for."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fastinfer.config import ConfigError
from fastinfer.evaluation import peers
from fastinfer.evaluation.contenders import Task
from fastinfer.events import Role


@pytest.fixture
def weights(tmp_path: Path) -> peers.Weights:
    folders = {Role.TARGET: tmp_path}
    return peers.Weights(folders, torch.bfloat16, torch.device("cpu"))


@pytest.mark.parametrize(
    ("peer", "package", "how"),
    [("flashspec", "flashspec", "-r requirements-bench.txt"),
     ("llama-cpp", "llama-cpp-python", "install llama-cpp-python")],
)  # fmt: skip
def test_a_peer_that_is_not_installed(
    peer: str, package: str, how: str, weights: peers.Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ConfigError, match=f"peers: {peer} needs the package {package}; .*{how}"):
        peers.peer_contenders([peer], weights, 100)


def test_assisted_generation_needs_a_draft(weights: peers.Weights) -> None:
    with pytest.raises(ConfigError, match="transformers-assisted needs a draft model"):
        peers.peer_contenders(["transformers-assisted"], weights, 100)


class FakeLlama:
    """The part of llama_cpp.Llama that is used; its prompt cache makes a missing reset visible."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.n_tokens = 0
        self.seeds: list[int] = []

    def reset(self) -> None:
        self.n_tokens = 0

    def set_seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def generate(self, tokens: list[int], **options: Any) -> Iterator[int]:
        assert self.n_tokens == 0, "the prompt of the run before is still there"
        assert (options["temp"], options["top_k"], options["min_p"]) == (0.0, 0, 0.0)
        self.n_tokens = len(tokens)
        while True:  # as llama.cpp does: an end of text is just one more token
            yield self.n_tokens
            self.n_tokens += 1


@pytest.fixture
def llama(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("llama_cpp")
    module.Llama = FakeLlama  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "llama_cpp", module)


@pytest.mark.usefixtures("llama")
def test_llama_cpp_gives_as_many_tokens_as_asked(weights: peers.Weights, tmp_path: Path) -> None:
    (tmp_path / peers.GGUF_NAME).touch()
    (contender,) = peers.peer_contenders(["llama-cpp"], weights, 100)
    task = Task(prompt_ids=(1, 2, 3), max_new_tokens=4, temperature=0.0, seed=9)
    for _ in range(2):
        run = contender.run(task)
        assert run.token_ids == (3, 4, 5, 6)
        assert run.tpot_ms >= 0
    assert isinstance(contender, peers.LlamaCpp)
    assert contender.model.seeds == [9, 9]
    assert contender.model.options["n_ctx"] == 100
    threads = torch.get_num_threads()
    assert contender.model.options["n_threads"] == threads
    assert contender.model.options["n_threads_batch"] == threads


@pytest.mark.usefixtures("llama")
@pytest.mark.parametrize(("file", "dtype", "says"), [
    (False, torch.bfloat16, "there is no model-bf16.gguf"),
    (True, torch.float32, "--dtype bfloat16"),
])  # fmt: skip
def test_llama_cpp_only_with_the_same_weights(
    file: bool, dtype: torch.dtype, says: str, tmp_path: Path
) -> None:
    if file:
        (tmp_path / peers.GGUF_NAME).touch()
    weights = peers.Weights({Role.TARGET: tmp_path}, dtype, torch.device("cpu"))
    with pytest.raises(ConfigError, match=says):
        peers.peer_contenders(["llama-cpp"], weights, 100)
