"""Corpora: data sets of the Hub against a Hub on loopback, files and folders, what is refused."""

from __future__ import annotations

import io
import json
import lzma
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from dataset_hub import serving
from datasets import Dataset

from fastinfer.config import ConfigError
from fastinfer.evaluation.corpora import read_corpus, read_parquet
from fastinfer.evaluation.windows import Document

ROOT = Path(__file__).resolve().parents[2]
BOOKS = {
    "short_book_title": ["Emma", "Walden"],
    "publication_date": [1815, 1854],
    "url": ["", ""],
    "text": ["Emma Woodhouse, handsome…\n", "When I wrote\n\nthe following pages\n"],
}
# WikiText's rows: a line each with its line break, and "" for a line that held one blank.
LINES = {"text": ["", " = Robert Boulter = \n", "", " He is an actor . \n"]}
WIKITEXT = " \n = Robert Boulter = \n \n He is an actor . \n"


def parquet(rows: dict[str, list[object]]) -> bytes:
    buffer = io.BytesIO()
    Dataset.from_dict(rows).to_parquet(buffer)
    return buffer.getvalue()


def in_process(source: str, cache: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """`read_corpus` in a process of its own: the Hub's client reads its variables on import."""
    script = (
        "import dataclasses, json, sys\n"
        "from fastinfer.evaluation.corpora import read_corpus\n"
        "print(json.dumps([dataclasses.asdict(d) for d in read_corpus(sys.argv[1])]))\n"
    )
    quiet = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-c", script, source],
        cwd=ROOT,
        env={**quiet, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


# --- the Hub --------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("folder", ["default/partial-test", "default/test"])
def test_pg19_comes_from_the_converted_branch_once_and_without_its_train_part(
    folder: str, tmp_path: Path
) -> None:
    files = {f"{folder}/0000.parquet": parquet(BOOKS), "default/train/0000.parquet": b"huge"}
    with serving("deepmind/pg19", "refs/convert/parquet", files) as hub:
        first = in_process("pg19", tmp_path, HF_ENDPOINT=hub.address)
        assert first.returncode == 0, first.stderr
        assert "%" in first.stderr, "a bar shows how far a download is"
        num_asked = len(hub.asked)
        again = in_process("pg19", tmp_path, HF_ENDPOINT=hub.address)
        assert len(hub.asked) == num_asked, "what is in the cache is not asked for again"
    expected = [
        {"name": name, "text": text}
        for name, text in zip(BOOKS["short_book_title"], BOOKS["text"], strict=True)
    ]
    assert json.loads(first.stdout) == json.loads(again.stdout) == expected
    assert not any("train" in path for path in hub.asked if "resolve" in path)
    offline = in_process("pg19", tmp_path, HF_HUB_OFFLINE="1")
    assert json.loads(offline.stdout) == expected


@pytest.mark.integration
def test_wikitext_is_its_own_file_again(tmp_path: Path) -> None:
    name = "wikitext-2-raw-v1/test-00000-of-00001.parquet"
    files = {name: parquet(LINES), "wikitext-2-v1/test-00000-of-00001.parquet": b"tokenised"}
    with serving("Salesforce/wikitext", "main", files) as hub:
        done = in_process("wikitext-2", tmp_path, HF_ENDPOINT=hub.address)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"name": "test", "text": WIKITEXT}]


@pytest.mark.integration
def test_a_script_repository_has_no_parquet_and_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with serving("deepmind/pg19", "refs/convert/parquet", {"pg19.py": b"raise"}) as hub:
        done = in_process("pg19", tmp_path, HF_ENDPOINT=hub.address)
    assert done.returncode != 0
    assert "ConfigError: corpus: pg19 in" in done.stderr.splitlines()[-1]


@pytest.mark.integration
@pytest.mark.parametrize("trouble", ["offline", "refused", "silent", "missing"])
def test_no_hub_is_one_sentence_in_seconds(trouble: str, tmp_path: Path) -> None:
    """The process has 60 seconds in all; the client's own patience, 23 seconds a file, is not
    asked for: a Hub that is not there is asked once."""
    with serving("another/set", "main", {}) as hub, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        if trouble == "silent":
            deaf.listen()
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        variables = {
            "offline": {"HF_HUB_OFFLINE": "1"},
            "missing": {"HF_ENDPOINT": hub.address},
        }.get(trouble, {"HF_ENDPOINT": address})
        done = in_process("wikitext-2", tmp_path, **variables)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert "ConfigError: corpus: wikitext-2 is not on this machine, and Salesforce/wik" in last
    assert "give a text file or a folder" in last
    assert "Retry" not in done.stderr
    assert len([path for path in hub.asked if "/datasets/" in path]) <= 1


# --- parquet on this machine ----------------------------------------------------------------------


def test_a_local_parquet_repository_reads_as_the_hubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "pg19" / "default" / "partial-test"
    folder.mkdir(parents=True)
    for part, start in enumerate((0, 1)):
        rows = {name: column[start : start + 1] for name, column in BOOKS.items()}
        (folder / f"000{part}.parquet").write_bytes(parquet(rows))
    assert read_parquet("pg19", tmp_path / "pg19") == [
        Document(name="Emma", text=BOOKS["text"][0]),
        Document(name="Walden", text=BOOKS["text"][1]),
    ]


@pytest.mark.parametrize("content", [b"", b"PAR1 no, it is not", parquet({"words": ["a"]})])
def test_a_broken_download_is_refused_in_a_sentence(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "0000.parquet").write_bytes(content)
    with pytest.raises(ConfigError, match=r"can't be read .* fetch it again"):
        read_parquet("pg19", tmp_path)


# --- files ----------------------------------------------------------------------------------------


def test_a_folder_is_its_text_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second", encoding="utf-8")
    (tmp_path / "a.txt").write_text("\ufefffirst: é", encoding="utf-8")
    (tmp_path / "c.xz").write_bytes(lzma.compress(b"third"))
    (tmp_path / "wiki.test.raw").write_text(WIKITEXT)
    (tmp_path / "notes.md").write_text("not this one")
    (tmp_path / "more").mkdir()
    assert read_corpus(str(tmp_path)) == [
        Document(name="a.txt", text="first: é"),
        Document(name="b.txt", text="second"),
        Document(name="c.xz", text="third"),
        Document(name="wiki.test.raw", text=WIKITEXT),
    ]


def test_one_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "wiki.test.tokens"
    file.write_bytes(b"line\r\nline\n")
    assert read_corpus(str(file)) == [Document(name="wiki.test.tokens", text="line\r\nline\n")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent", None, "must be wikitext-2, pg19, a text file, or a folder"),
        ("latin.txt", "é".encode("latin-1"), "must be a text in UTF-8"),
        ("cut.xz", lzma.compress(b"whole")[:-6], "must be a whole .xz file"),
        ("other.xz", b"no", "must be a whole .xz file"),
    ],
)
def test_what_is_no_text_is_refused(
    name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_corpus(str(path))
    assert caught.value.field == "corpus"


def test_a_folder_without_texts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"folder of text files \(.txt, .raw, .xz\)"):
        read_corpus(str(tmp_path))
