"""`fastinfer bench` from end to end on tiny random folders; peers against our own greedy text."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import byte_tokenizer, tiny_neox

from fastinfer import cli
from fastinfer.config import ConfigError
from fastinfer.engine import Engine
from fastinfer.evaluation.contenders import Ours, Task, our_contenders
from fastinfer.evaluation.names import METHODS
from fastinfer.evaluation.peers import Weights, peer_contenders
from fastinfer.events import Role
from fastinfer.models.loading import LoadedModels, load_models

pytestmark = [
    pytest.mark.integration,
    # flashspec calls transformers by old names, which still work.
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning"),
]

ROOT = Path(__file__).resolve().parents[2]
SIZES = {Role.DRAFT: (16, 1), Role.INTERMEDIATE: (16, 2), Role.TARGET: (32, 2)}
TASK = Task(prompt_ids=tuple(range(5, 30)), max_new_tokens=24, temperature=0.0, seed=1)


def save(folder: Path, seed: int, size: tuple[int, int]) -> str:
    """No padded rows: our engine never gives such an id, and peers do."""
    model = tiny_neox(seed, *size)
    model.resize_token_embeddings(257)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Role, str]:
    root = tmp_path_factory.mktemp("tiny")
    return {
        role: save(root / role.value, seed, size)
        for seed, (role, size) in enumerate(SIZES.items(), start=1)
    }


@pytest.fixture(scope="module")
def models(folders: dict[Role, str]) -> LoadedModels:
    return load_models("nano", folders, "float32", "cpu")


@pytest.fixture(scope="module")
def weights(models: LoadedModels) -> Weights:
    return Weights(models.folders, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="module")
def ours(models: LoadedModels) -> tuple[int, ...]:
    return Ours("ours", Engine(models), METHODS["autoregressive"]).run(TASK).token_ids


def test_the_folders_are_those_that_were_loaded(
    folders: dict[Role, str], models: LoadedModels
) -> None:
    assert {role: str(path) for role, path in models.folders.items()} == folders


# --- contenders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["transformers", "transformers-assisted", "flashspec"])
def test_a_peers_greedy_text_is_ours(name: str, weights: Weights, ours: tuple[int, ...]) -> None:
    (peer,) = peer_contenders([name], weights, 100)
    for _ in range(2):  # nothing of the run before is left
        run = peer.run(TASK)
        assert run.token_ids == ours
        assert run.ttft_ms > 0
        assert run.tpot_ms > 0


@pytest.mark.parametrize("name", ["transformers", "transformers-assisted", "flashspec"])
def test_a_peer_samples_as_many_tokens_as_asked(name: str, weights: Weights) -> None:
    (peer,) = peer_contenders([name], weights, 100)
    task = Task(prompt_ids=(5, 6, 7), max_new_tokens=40, temperature=2.0, seed=3)
    first = peer.run(task)
    assert len(first.token_ids) == 40
    assert first.token_ids == peer.run(task).token_ids


@pytest.mark.parametrize("name", ["transformers", "transformers-assisted", "flashspec"])
def test_no_end_of_text_stops_a_peer(
    name: str, weights: Weights, ours: tuple[int, ...], tmp_path: Path
) -> None:
    """Copies of the models that call a token in the middle of the text its end."""
    folders = {}
    for role, folder in weights.folders.items():
        folders[role] = tmp_path / role.value
        shutil.copytree(folder, folders[role])
        for file in ("config.json", "generation_config.json"):
            config = json.loads((folder / file).read_text())
            (folders[role] / file).write_text(json.dumps({**config, "eos_token_id": ours[9]}))
    (peer,) = peer_contenders([name], Weights(folders, torch.float32, weights.device), 100)
    assert peer.run(TASK).token_ids == ours


def test_flashspec_without_a_draft_looks_up(weights: Weights, ours: tuple[int, ...]) -> None:
    alone = Weights({Role.TARGET: weights.folders[Role.TARGET]}, torch.float32, weights.device)
    (peer,) = peer_contenders(["flashspec"], alone, 100)
    assert peer.run(TASK).token_ids == ours


def test_models_that_a_peer_can_not_pair_are_refused(weights: Weights, tmp_path: Path) -> None:
    model = tiny_neox(9)  # with padded rows
    model.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    folders = {**weights.folders, Role.DRAFT: tmp_path}
    unlike = Weights(folders, torch.float32, weights.device)
    with pytest.raises(ConfigError, match=r"as many output rows in the draft \(264\) .* \(257\)"):
        peer_contenders(["transformers-assisted"], unlike, 100)


@pytest.mark.parametrize("name", list(METHODS))
def test_our_methods_give_the_same_text(
    name: str, models: LoadedModels, ours: tuple[int, ...]
) -> None:
    (method,) = our_contenders(Engine(models), [name], {"gamma": 3}, [TASK])
    assert method.run(TASK).token_ids == ours


def test_a_fused_method_is_lossless_but_on_the_target(
    models: LoadedModels,
) -> None:
    long = dataclasses.replace(TASK, prompt_ids=tuple(range(5, 100)))
    texts = {}
    for press in ("", "+random@0.75:draft", "+random@0.75", "+random@0.75:draft/target"):
        for method in ("autoregressive", "speculative+aimd"):
            if method == "autoregressive" and "draft" in press:
                continue  # it has no such model
            contenders = our_contenders(
                Engine(models), [method + press], {"press_interval": 8}, [long]
            )
            texts[method + press] = contenders[0].run(long).token_ids
    assert texts["speculative+aimd+random@0.75:draft"] == texts["autoregressive"]
    lossy = texts["autoregressive+random@0.75"]
    assert lossy != texts["autoregressive"]
    assert texts["speculative+aimd+random@0.75"] == lossy
    assert texts["speculative+aimd+random@0.75:draft/target"] == lossy


def test_what_does_not_fit_the_context_is_refused_before_a_run(models: LoadedModels) -> None:
    task = Task(prompt_ids=(5,) * 200, max_new_tokens=57, temperature=0.0, seed=1)
    with pytest.raises(ConfigError, match="257 tokens; the model reads at most 256"):
        our_contenders(Engine(models), ["autoregressive"], {}, [task])


def test_a_method_without_its_model_is_refused_before_a_run(folders: dict[Role, str]) -> None:
    alone = Engine(load_models("nano", {Role.TARGET: folders[Role.TARGET]}, "float32", "cpu"))
    with pytest.raises(ConfigError, match="draft: speculative needs a model"):
        our_contenders(alone, ["speculative"], {}, [TASK])


# --- the command --------------------------------------------------------------------------------


def options(folders: dict[Role, str]) -> list[str]:
    named = [part for role, folder in folders.items() for part in (f"--{role.value}", folder)]
    short = ["--prompt-tokens", "16", "--max-new-tokens", "12", "--repeats", "2"]
    # A policy that never stops drafting, whatever this machine's clock says.
    return [*named, "--dtype", "float32", *short, "--gamma-policy", "constant"]


@pytest.fixture(scope="module")
def done(
    folders: dict[Role, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The whole process once, as a person starts it."""
    root = tmp_path_factory.mktemp("bench")
    (root / "prompts").mkdir()
    (root / "prompts" / "long.txt").write_text("The old man looked at the sea. " * 9)
    (root / "prompts" / "short.txt").write_text("No.")
    names = ["--methods", ",".join(METHODS), "--peers", "transformers,transformers-assisted"]
    more = ["--prompts", str(root / "prompts"), "--out", str(root / "made" / "out")]
    process = subprocess.run(
        [sys.executable, "-m", "fastinfer", "bench", *options(folders), *names, *more],
        cwd=ROOT,
        env={**os.environ, "BROWSER_PATH": "/no/such/browser"},
        capture_output=True,
        text=True,
        timeout=170,
    )
    return process, root / "made" / "out"


@pytest.fixture(scope="module")
def document(done: tuple[subprocess.CompletedProcess[str], Path]) -> dict[str, Any]:
    process, _ = done
    assert process.returncode == 0, process.stderr
    document: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return document


def test_the_last_line_is_the_whole_result(
    done: tuple[subprocess.CompletedProcess[str], Path], document: dict[str, Any]
) -> None:
    process, out = done
    assert len(process.stdout.splitlines()) == 1
    assert json.loads((out / "result.json").read_text()) == document
    assert list(document["results"]) == [*METHODS, "transformers", "transformers-assisted"]
    assert document["plan"]["prompts"] == {"long": 16, "short": 3}
    assert document["notes"] == ["short has 3 tokens, fewer than 16: used whole"]
    assert document["dtype"] == "float32"
    assert document["environment"]["threads"] >= 1
    assert "torch" in document["environment"]["libraries"]
    assert document["peak_memory_bytes"] > 0


def test_greedy_text_is_the_baselines_in_every_run(document: dict[str, Any]) -> None:
    for name, result in document["results"].items():
        assert result["greedy_first_difference"] == [None] * 4, name


def test_every_figure_of_a_speculating_method(document: dict[str, Any]) -> None:
    cascade = document["results"]["cascade"]
    assert set(cascade["stages"]) == {"intermediate", "target"}
    for stage in cascade["stages"].values():
        assert 0 <= stage["acceptance"] <= 1
        assert stage["acceptance_by_position"]
    assert cascade["mean_accepted_length"] >= 1
    assert cascade["c"] > 0
    assert cascade["v"].keys() == cascade["rounds_by_block"].keys()
    assert cascade["predicted_speedup"] > 0
    assert len(cascade["runs"]) == 4
    assert "c" not in document["results"]["autoregressive"]
    assert "stages" not in document["results"]["transformers"]


def test_files_and_words_for_people(
    done: tuple[subprocess.CompletedProcess[str], Path], document: dict[str, Any]
) -> None:
    process, out = done
    assert "TPOT ms" in process.stderr
    assert f"written to {out}" in process.stderr
    assert "Traceback" not in process.stderr
    page = (out / "report.html").read_text()
    assert "Plotly.newPlot" in page
    assert "transformers-assisted" in page
    assert (out / "report.png").exists() or "no picture: " in process.stderr


def test_a_peer_that_can_not_run_stops_it_before_the_first_run(
    folders: dict[Role, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *options(folders), "--peers", "llama-cpp"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: peers: llama-cpp ")
    assert "run/s" not in err
