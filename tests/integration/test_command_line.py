"""The command line with the real engine and the bundled models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import save_tiny

from fastinfer import cli
from fastinfer.engine import Engine, load
from fastinfer.events import Origin
from fastinfer.options import ModelChoice

ROOT = Path(__file__).resolve().parents[2]
NANO = ROOT / "assets" / "models" / "nano"
PROMPT = "The old man looked at the sea and"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not all((NANO / role / "config.json").exists() for role in ("draft", "target")),
        reason=f"the bundled models are missing: no {NANO}",
    ),
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32", device="cpu")


def text_of(engine: Engine, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    def loaded(choice: ModelChoice) -> Engine:
        return engine

    assert cli.main(["generate", "--prompt", PROMPT, *options], load=loaded) == 0
    return capsys.readouterr().out


METHODS = ("autoregressive", "speculative", "cascade")


@pytest.mark.parametrize(
    "sampling",
    [("--temperature", "0"), ("--rule", "coupled", "--temperature", "0.9", "--seed", "7")],
    ids=["greedy", "coupled"],
)
def test_the_three_methods_print_the_same_text(
    engine: Engine, sampling: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {
        text_of(engine, capsys, "--method", method, "--max-new-tokens", "48", *sampling)
        for method in METHODS
    }
    assert len(texts) == 1
    assert len(texts.pop()) > 48


def test_a_seed_repeats_a_run(engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    def run(seed: int) -> str:
        # A policy that does not follow the clock.
        policy = ("--gamma-policy", "aimd")
        return text_of(engine, capsys, "--max-new-tokens", "24", "--seed", str(seed), *policy)

    assert run(1) == run(1) != run(2)


def test_a_cascade_streams_json_with_every_origin_of_a_speculated_token() -> None:
    """The whole process, as a person starts it; a constant gamma, so that no clock decides."""
    options = ["--method", "cascade", "--max-new-tokens", "80", "--temperature", "0.8"]
    more = ["--prompt", PROMPT, "--seed", "1", "--gamma-policy", "constant", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "fastinfer", "generate", *options, *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [events[0]["type"], events[-1]["type"]] == ["started", "finished"]
    steps = events[1:-1]
    assert {step["type"] for step in steps} == {"step"}
    tokens = [token for step in steps for token in step["tokens"]]
    assert "".join(token["text"] for token in tokens) == events[-1]["text"]
    assert events[-1]["num_tokens"] == len(tokens) == 80
    first = events[0]["num_prompt_tokens"]
    assert [token["position"] for token in tokens] == list(range(first, first + 80))
    assert {token["origin"] for token in tokens} == {origin.value for origin in Origin}


def test_places_in_the_cache_go_past_the_context(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model reads 256 tokens at most, and writes 400."""
    ends = {}
    for positions in ("in_cache", "original"):
        code = cli.main([
            "generate", "--prompt", PROMPT, "--target", save_tiny(tmp_path, 1), "--json",
            "--method", "autoregressive", "--max-new-tokens", "400", "--ignore-eos", "--seed", "1",
            "--press", "streaming", "--press-positions", positions,
            "--max-cache-tokens", "64", "--press-interval", "32",
        ])  # fmt: skip
        assert code == 0
        ends[positions] = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (ends["in_cache"]["reason"], ends["in_cache"]["num_tokens"]) == ("length", 400)
    assert ends["original"]["reason"] == "context"
    assert ends["original"]["num_tokens"] == 256 - len(PROMPT.encode())


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("prompt", ("--prompt", "")),
        ("prompt", ("--prompt", "word " * 3000)),
        ("preset", ("--prompt", "x", "--preset", "giant")),
        ("target", ("--prompt", "x", "--target", "./no/such/folder")),
        ("dtype", ("--prompt", "x", "--dtype", "float16")),
        ("device", ("--prompt", "x", "--device", "toaster")),
        ("draft", ("--prompt", "x", "--target", str(NANO / "target"), "--draft", "model")),
    ],
    ids=["no-prompt", "long-prompt", "preset", "folder", "dtype", "device", "no-draft"],
)
def test_what_the_engine_refuses_is_one_sentence_and_code_2(
    field: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["generate", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(f"error: {field}: ")
    assert "Traceback" not in err
