"""Perplexity against transformers' own loss and against decoding, and `fastinfer ppl` from end to
end."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import byte_tokenizer, save_tiny
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from fastinfer import cli
from fastinfer.config import PRESS_NAMES, DecodeConfig
from fastinfer.engine import Engine
from fastinfer.evaluation.perplexity import window_loss
from fastinfer.evaluation.windows import Document, Window, coder_of, cut
from fastinfer.events import Role, Step
from fastinfer.models.catalog import BUNDLED
from fastinfer.models.compression import CompressionPlan, plan_for
from fastinfer.models.loading import LoadedModels, load_models
from fastinfer.models.session import Session
from fastinfer.presses import PRESSES

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TEXT = (
    "The old man looked at the sea, and the sea looked back at him: grey, patient and very old. "
    "»Ça va?« he asked it → nothing. "
) * 12
INTERVALS = [None, 16]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("ppl") / "model", seed=3)


@pytest.fixture(scope="module")
def models(folder: str) -> LoadedModels:
    return load_models("nano", {Role.TARGET: folder}, "float32", "cpu")


@pytest.fixture(scope="module")
def windows(models: LoadedModels) -> list[Window]:
    made, _ = cut(
        [Document(name="d", text=TEXT)],
        coder_of(models.tokenizer),
        context=200,
        stride=80,
        max_windows=3,
    )
    return made


def session(models: LoadedModels, plan: CompressionPlan | None = None) -> Session:
    return Session(models.decoders[Role.TARGET], Role.TARGET, models.vocab_size, plan=plan)


def request(press: str | None, interval: int | None, **more: Any) -> DecodeConfig:
    options = {"press": press, "press_interval": interval} if press else {}
    return DecodeConfig.from_mapping({"method": "autoregressive", **options, **more})


def loss(models: LoadedModels, window: Window, config: DecodeConfig, interval: int | None) -> Any:
    return window_loss(session(models, plan_for(config, Role.TARGET)), window, interval)


# --- against others -------------------------------------------------------------------------------


def test_the_whole_cache_gives_the_loss_of_transformers(
    folder: str, models: LoadedModels, windows: list[Window]
) -> None:
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for window in windows:
        ids = torch.tensor(window.ids)
        with torch.inference_mode():
            logits = reference(input_ids=ids[None]).logits[0, :, : models.vocab_size]
        rows = logits[window.first - 1 : -1].log_softmax(-1)
        expected = -rows.gather(1, ids[window.first :, None]).sum()
        for interval in INTERVALS:
            found = loss(models, window, request(None, None), interval)
            assert found.nats == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("press", PRESS_NAMES)
def test_teacher_forcing_meets_the_press_as_decoding_does(
    press: str, interval: int | None, models: LoadedModels
) -> None:
    """The engine reports how likely its target found each token that it drew. Reading the same text
    gives the same probabilities, so the press acted at the same places on the same entries."""
    ids = coder_of(models.tokenizer).encode(TEXT)[:120]
    config = request(press, interval, compression_ratio=0.6, seed=5, max_new_tokens=70,
                     ignore_eos=True)  # fmt: skip
    tokens = [
        token
        for event in Engine(models).stream(ids, config)
        if isinstance(event, Step)
        for token in event.tokens
    ]
    window = Window(document="d", ids=(*ids, *(t.id for t in tokens)), first=len(ids), num_bytes=1)
    found = loss(models, window, config, interval)
    assert found.nats == pytest.approx(-sum(math.log(t.target_prob) for t in tokens), rel=1e-4)
    whole = loss(models, window, request(None, None), interval)
    assert abs(found.nats - whole.nats) > 0.01, "the press did act"
    assert found.live_bytes < 0.75 * whole.live_bytes


# --- a ratio of nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("press", PRESS_NAMES)
def test_a_ratio_of_0_is_exactly_the_whole_cache(
    press: str, interval: int | None, models: LoadedModels, windows: list[Window]
) -> None:
    """Through the options, which ask for no compression then, and with a press that is asked each
    time and removes nothing."""
    plan = CompressionPlan(press=PRESSES[press], ratio=0.0, interval=interval)
    for window in windows:
        whole = loss(models, window, request(None, None), interval)
        none = request(press, interval, compression_ratio=0)
        assert loss(models, window, none, interval) == whole
        asked = window_loss(session(models, plan), window, interval)
        assert asked.nats == whole.nats
        assert asked.live_bytes == whole.live_bytes


def test_the_same_call_gives_the_same_figures(models: LoadedModels, windows: list[Window]) -> None:
    config = request("random", 16, compression_ratio=0.5)
    first = [loss(models, w, config, 16) for w in windows]
    assert first == [loss(models, w, config, 16) for w in windows]


# --- a press that drops what matters --------------------------------------------------------------


@pytest.mark.skipif(not (BUNDLED / "nano" / "target").is_dir(), reason="nano is not here")
def test_losing_what_is_repeated_costs() -> None:
    """The real model reads a passage twice. The second reading costs more nats, over all its
    tokens, where the first is no longer in the cache."""
    nano = load_models("nano", {}, "float32", "cpu")
    passage = (
        "Seven grey kettles, Mrs Aldous Thorne, a brass telescope and forty plums lay under the "
        "stairs at Wick; nobody but Quill, the apothecary, had counted the plums. "
    )
    ids = coder_of(nano.tokenizer).encode(passage * 2)
    window = Window(document="d", ids=tuple(ids), first=len(ids) // 2, num_bytes=1)
    short = request("streaming", 1, max_cache_tokens=24, press_sinks=1)
    whole = loss(nano, window, request(None, None), 1).nats
    assert loss(nano, window, short, 1).nats > whole + 5.0


# --- the command ----------------------------------------------------------------------------------

Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def run(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    text = tmp_path / "a book.txt"
    text.write_text(TEXT, encoding="utf-8")

    def call(*argv: str, model: str = folder) -> tuple[int, dict[str, Any], str]:
        named = ["--corpus", str(text), "--target", model, "--dtype", "float32"]
        code = cli.main(["ppl", *named, *argv])
        out, err = capsys.readouterr()
        lines = out.splitlines()
        return code, json.loads(lines[-1]) if lines else {}, err

    return call


def test_the_grid_in_one_call(folder: str, tmp_path: Path) -> None:
    """The whole process once, as a person starts it."""
    (tmp_path / "texts").mkdir()
    for name in ("one", "two"):
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{name}: {TEXT}", encoding="utf-8")
    out = tmp_path / "made" / "out"
    process = subprocess.run(
        [sys.executable, "-m", "fastinfer", "ppl", "--grid", "--target", folder,
         "--corpus", str(tmp_path / "texts"), "--context", "160", "--stride", "60",
         "--max-windows", "3", "--dtype", "float32", "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "BROWSER_PATH": "/no/such/browser"},
        capture_output=True,
        text=True,
        timeout=170,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert len(process.stdout.splitlines()) == 1
    document = json.loads(process.stdout)
    assert json.loads((out / "result.json").read_text()) == document
    assert len(document["results"]) == 1 + len(PRESS_NAMES) * 3
    assert document["corpus"]["documents"] == ["one.txt", "two.txt"]
    assert str(tmp_path) not in process.stdout, "paths stay private"
    assert document["dtype"] == "float32"
    assert (document["plan"]["context"], document["plan"]["stride"]) == (160, 60)
    whole = document["results"]["uncompressed"]
    assert whole["tokens"] == sum(w["tokens"] for w in document["windows"]) <= 180
    assert whole["bits_per_byte"] == pytest.approx(
        sum(whole["nats_by_window"]) / math.log(2) / sum(w["bytes"] for w in document["windows"])
    )
    for name, result in document["results"].items():
        assert result["tokens"] == whole["tokens"], name
        if name != "uncompressed":
            assert result["live_share"] < 1
    assert "93/93" in process.stderr, "a bar counts windows"
    assert "no picture: it takes the package kaleido" in process.stderr
    assert "over random" in process.stderr
    assert "snapkv@0.75" in (out / "report.html").read_text(encoding="utf-8")


def test_a_model_without_queries_leaves_out_what_needs_them(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=257, n_embd=32, n_layer=2, n_head=2, n_positions=256, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    byte_tokenizer().save_pretrained(tmp_path / "gpt2")
    code, document, err = run(
        "--press", "knorm,snapkv", "--context", "120", "--max-windows", "2",
        model=str(tmp_path / "gpt2"),
    )  # fmt: skip
    assert code == 0
    assert list(document["results"]) == ["uncompressed", "knorm@0.5"]
    assert any(note.startswith("snapkv@0.5 is left out: press: ") for note in document["notes"])
    assert "snapkv@0.5 is left out" in err


def test_places_in_the_cache_go_past_the_context(run: Run) -> None:
    """The model reads 256 tokens at most; 700 go through it with a budget."""
    long = ("--context", "700", "--stride", "600", "--max-windows", "1")
    press = ("--press", "streaming", "--max-cache-tokens", "64")
    code, document, _ = run(*long, *press, "--press-positions", "in_cache")
    assert code == 0
    assert list(document["results"]) == ["streaming@64tokens"]
    assert document["results"]["streaming@64tokens"]["tokens"] == 600
    assert document["notes"][-1].startswith("uncompressed is left out: context: is too long")
    code, document, err = run(*long, *press)
    assert code == 2
    assert err.splitlines()[-1].startswith("error: context: is too long: a window of 700 tokens")
    assert document == {}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--corpus", "/no/such/book.txt"], "error: corpus: must be wikitext-2, pg19, a text file"),
        (["--context", "9000"], "error: corpus: has no text of more than 4500 tokens"),
        (["--preset", "none"], "error: preset: must be one of"),
        (["--device", "abacus"], "error: device: must be auto, cpu"),
    ],
)
def test_what_only_a_loaded_model_can_refuse(argv: list[str], message: str, run: Run) -> None:
    code, document, err = run(*argv)
    assert code == 2
    assert document == {}
    assert err.splitlines()[-1].startswith(message)


def test_a_role_that_the_preset_lacks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("text")
    argv = ["ppl", "--corpus", str(tmp_path / "t.txt"), "--preset", "smollm2-135m"]
    assert cli.main([*argv, "--role", "draft"]) == 2
    assert capsys.readouterr().err.startswith("error: role: must be one of target with smollm2")
