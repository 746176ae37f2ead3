"""The Hub, played on loopback: downloads, faults, and what is said of each."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import COMMIT, FakeHub, point_at, serving
from huggingface_hub.errors import HfHubHTTPError
from tiny import byte_tokenizer, save_tiny, tiny_neox

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import load
from fastinfer.events import Role
from fastinfer.models import hub as our_hub
from fastinfer.models.hub import Fetched, cached, is_wanted, parse
from fastinfer.models.inventory import needed_bytes
from fastinfer.models.sources import find, locate

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
NAME = "somebody/tiny"
SECONDS = 5.0  # the longest that a trouble may take to be told: ANSWER_SECONDS and our own


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repo") / "tiny"
    save_tiny(folder, 1)
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "consolidated.safetensors").write_bytes(b"the same again")
    return folder


@pytest.fixture
def hub(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving(FakeHub(repos={NAME: files})) as running:
        point_at(monkeypatch, running.url, tmp_path / "cache")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def refusal(name: str = NAME) -> str:
    """What a failed download says: one line, soon."""
    begin = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        locate(Role.TARGET, name)
    assert time.monotonic() - begin < SECONDS
    text = str(caught.value)
    assert text.startswith("target: ")
    assert "\n" not in text
    return text


def test_a_model_comes_from_the_hub_once(hub: FakeHub) -> None:
    heard: list[Fetched] = []
    engine = load(target=NAME, draft=NAME, dtype="float32", progress=heard.append)
    assert engine.info.models == {Role.TARGET: NAME, Role.DRAFT: NAME}
    config = DecodeConfig(max_new_tokens=3, ignore_eos=True)
    assert engine.generate("hello", config).stats.num_tokens == 3
    asked = {path for method, path, _ in hub.requests if method == "GET"}
    assert not any("pytorch_model.bin" in path or "consolidated" in path for path in asked)
    hub.requests.clear()
    load(target=NAME, dtype="float32")
    assert hub.requests == [], "what is here is taken as it is"
    total = heard[-1].total_bytes
    assert heard[-1] == Fetched(name=NAME, done_bytes=total, total_bytes=total)
    counts = [state.done_bytes for state in heard]
    assert counts == sorted(counts)
    assert 0 < counts[0] <= total


def test_a_revision_may_be_named(hub: FakeHub) -> None:
    assert locate(Role.TARGET, f"{NAME}@{COMMIT}").name == COMMIT
    assert find(Role.TARGET, f"{NAME}@{COMMIT}") is not None
    assert "has no revision nowhere" in refusal(f"{NAME}@nowhere")
    assert (parse("a/b").revision, parse("a/b@c").revision) == ("main", "c")


def test_only_safe_weights_are_wanted() -> None:
    wanted = ["model.safetensors", "config.json", "tokenizer.model", "chat_template.jinja",
              "model-00001-of-00002.safetensors", "vocab.json", "merges.txt"]  # fmt: skip
    refused = ["pytorch_model.bin", "model.gguf", "onnx/model.json", "modeling_x.py",
               "consolidated.safetensors", "original/params.json"]  # fmt: skip
    assert [name for name in wanted + refused if is_wanted(name)] == wanted


@pytest.mark.parametrize("reset", [False, True], ids=["cut", "reset"])
def test_a_broken_download_goes_on(
    hub: FakeHub, files: Path, monkeypatch: pytest.MonkeyPatch, reset: bool
) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cuts, hub.reset = [5000, 6000], reset
    folder = locate(Role.TARGET, NAME)
    assert (folder / "model.safetensors").read_bytes() == (files / "model.safetensors").read_bytes()
    if not reset:
        assert hub.ranges() == [None, "bytes=5000-", "bytes=11000-"]


def test_an_interrupted_download_is_not_taken_for_a_model(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    hub.cuts = [100] + [0] * 40
    assert "is out of reach" in refusal()
    assert cached(parse(NAME)) is None
    hub.cuts.clear()
    done = [path for _, path, _ in hub.requests if path.endswith("config.json")]
    assert done
    hub.requests.clear()
    locate(Role.TARGET, NAME)
    assert [path for m, path, _ in hub.requests if m == "GET" and "/resolve/" in path] == [
        f"/{NAME}/resolve/{COMMIT}/model.safetensors"
    ], "finished files are not fetched again"


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503, 429])
def test_a_refusal_is_one_sentence(hub: FakeHub, status: int) -> None:
    hub.status = status
    said = refusal()
    if status in (401, 403, 404):
        assert f"{hub.url} shows no model {NAME}; check the name, or give a token" in said
    else:
        assert f"answered {status} for {NAME}; try again later, or name a mirror" in said


def test_a_gated_model_asks_for_a_token(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token, hub.gated = "secret", True
    said = refusal()
    assert f"is gated: accept its licence at {hub.url}/{NAME}, then give a token" in said
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert (locate(Role.TARGET, NAME) / "model.safetensors").is_file()


def test_a_private_model_looks_like_none(hub: FakeHub) -> None:
    hub.token = "secret"
    assert "shows no model" in refusal()


def test_a_hub_that_is_not_there(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    point_at(monkeypatch, f"http://127.0.0.1:{port}", tmp_path)
    assert f"http://127.0.0.1:{port} is out of reach" in refusal()
    assert "check the network, name a mirror in HF_ENDPOINT, or give a local folder" in refusal()


def test_a_hub_that_never_answers(hub: FakeHub) -> None:
    hub.silent = True
    assert "is out of reach" in refusal()


def test_a_name_that_takes_for_ever_to_resolve(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    monkeypatch.setattr(our_hub, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(our_hub.HfApi, "model_info", lambda *_, **__: done.wait(60))
    assert "is out of reach (no answer in 0.5 seconds)" in refusal()
    done.set()


def test_a_cache_without_a_list_of_its_files_is_checked_by_the_index(
    hub: FakeHub, tmp_path: Path
) -> None:
    tiny_neox(1).save_pretrained(tmp_path / "sharded", max_shard_size="60KB")
    byte_tokenizer().save_pretrained(tmp_path / "sharded")
    hub.repos["somebody/sharded"] = tmp_path / "sharded"
    folder = locate(Role.TARGET, "somebody/sharded")
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    for listing in (tmp_path / "cache").rglob("trees/*.json"):
        listing.unlink()  # as an older huggingface_hub leaves it
    assert cached(parse("somebody/sharded")) == folder
    shards[0].unlink()
    assert cached(parse("somebody/sharded")) is None


def test_offline_means_no_request(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE forbids to fetch it; unset that, or give a local folder" in refusal()
    assert hub.requests == []


def test_weights_that_can_run_code_are_refused(hub: FakeHub, tmp_path: Path) -> None:
    unsafe = tmp_path / "unsafe"
    unsafe.mkdir()
    (unsafe / "config.json").write_text("{}")
    (unsafe / "pytorch_model.bin").write_bytes(b"a pickle")
    hub.repos["somebody/unsafe"] = unsafe
    assert "has no weights as safetensors" in refusal("somebody/unsafe")


def test_no_room_on_the_disk_is_said_before_the_first_byte(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(our_hub.shutil, "disk_usage", lambda folder: usage(10, 7, 3))
    assert "make room, or name another disk in HF_HOME" in refusal()
    assert hub.ranges() == []


def test_a_folder_wins_over_a_name(
    hub: FakeHub, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files.parent.parent)
    local = f"{files.parent.name}/{files.name}"
    assert locate(Role.TARGET, local) == Path(local)
    assert hub.requests == []


def test_the_command_downloads_with_a_bar_and_says_where(
    hub: FakeHub, files: Path, tmp_path: Path
) -> None:
    def download() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fastinfer", "download", "--target", NAME],
            env={
                **os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"),
                "HF_HUB_OFFLINE": "0",
            },
            cwd=ROOT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    done = download()
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert (folder / "model.safetensors").read_bytes() == (files / "model.safetensors").read_bytes()
    assert NAME in done.stderr
    assert "100%" in done.stderr
    hub.status = 404
    shutil.rmtree(tmp_path / "home")
    failed = download()
    assert failed.returncode == 2
    assert failed.stdout == ""
    assert failed.stderr.startswith("error: target: ")
    assert len(failed.stderr.splitlines()) == 1


def test_memory_is_known_from_the_headers(files: Path) -> None:
    from safetensors.torch import load_file  # noqa: PLC0415

    weights = load_file(files / "model.safetensors")
    count = sum(tensor.numel() for tensor in weights.values())
    folder = files.parent / "weights-only"
    folder.mkdir()
    shutil.copy(files / "model.safetensors", folder)
    assert needed_bytes([folder], "float32", "cpu") == int(count * 4 * 1.3)
    assert needed_bytes([folder, folder], "bfloat16", "cpu") == int(2 * count * 2 * 1.3)
    assert issubclass(HfHubHTTPError, OSError), "what _snapshot does not try again"
