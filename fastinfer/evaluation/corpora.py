"""Texts to measure a model on: WikiText-2 and PG-19 from the Hub, or plain text on this machine.

A data set of the Hub is fetched once, its test part only, and is read from the cache from then on
without asking the Hub again. It is read through the `datasets` library from its parquet files:
version 4 of that library and later refuse repositories that load by a script.
"""

from __future__ import annotations

import contextlib
import functools
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetsError
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from fastinfer.config import ConfigError
from fastinfer.evaluation.names import CORPORA

SUFFIXES = (".txt", ".raw", ".xz")
CONNECT_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Document:
    """A named text; windows never cross from one into another."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class HubCorpus:
    """Where a data set's test part lies, and how its rows make documents."""

    repository: str
    revision: str
    pattern: str  # of the parquet files
    documents: Callable[[Dataset], Iterator[Document]]


def _lines(rows: Dataset) -> Iterator[Document]:
    # One row a line. The data set keeps a line of nothing but white space as "", and it was " \n".
    # So this is WikiText's own file again, the same text as a local copy of it gives.
    yield Document(name="test", text="".join(line or " \n" for line in rows["text"]))


def _books(rows: Dataset) -> Iterator[Document]:
    for row in rows:
        yield Document(name=row["short_book_title"], text=row["text"])


def hub_corpora() -> dict[str, HubCorpus]:
    """The data sets that go by a name."""
    # PG-19's main branch is a script; the Hub's own conversion names folders `test` or, for large
    # data sets, `partial-test`.
    return {
        "wikitext-2": HubCorpus(
            repository="Salesforce/wikitext",
            revision="main",
            pattern="wikitext-2-raw-v1/test-*.parquet",
            documents=_lines,
        ),
        "pg19": HubCorpus(
            repository="deepmind/pg19",
            revision="refs/convert/parquet",
            pattern="*test/*.parquet",
            documents=_books,
        ),
    }


def read_corpus(source: str) -> list[Document]:
    """`wikitext-2`, `pg19`, a text file, or a folder of text files (.txt, .raw, .xz).

    Raises `ConfigError` that says what to do when there is nothing to read.
    """
    if source in CORPORA:
        return read_parquet(hub_corpora()[source], fetch_corpus(source))
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    else:
        files = [path] if path.is_file() else []
    documents = [Document(name=file.name, text=_read(file)) for file in files]
    if not documents:
        raise ConfigError(
            "corpus",
            f"must be {', '.join(CORPORA)}, a text file, or a folder of text files "
            f"({', '.join(SUFFIXES)}), not {source!r}",
        )
    return documents


def fetch_corpus(name: str) -> Path:
    """The folder of a data set's test part, from the Hub's cache or from the Hub.

    Raises `ConfigError` within seconds where it is in neither.
    """
    if name not in CORPORA:
        raise ConfigError("dataset", f"must be one of {', '.join(CORPORA)}, not {name!r}")
    corpus = hub_corpora()[name]
    download = functools.partial(
        snapshot_download,
        corpus.repository,
        repo_type="dataset",
        revision=corpus.revision,
        allow_patterns=[corpus.pattern],
        etag_timeout=CONNECT_SECONDS,
    )
    with contextlib.suppress(LocalEntryNotFoundError):
        return Path(download(local_files_only=True))
    try:
        # Asked first, for this call keeps to its time limit and those of a download do not.
        HfApi().dataset_info(corpus.repository, revision=corpus.revision, timeout=CONNECT_SECONDS)
        return Path(download())
    except Exception as error:  # the Hub's client lets errors of its HTTP library through
        raise ConfigError(
            "corpus",
            f"{name} is not on this machine, and {corpus.repository} could not be fetched from "
            f"{constants.ENDPOINT}; check the network, or give a text file or a folder of text "
            f"files ({_first_line(error)})",
        ) from error


def read_parquet(corpus: HubCorpus, folder: Path) -> list[Document]:
    """The documents in the parquet files of a downloaded data set; raises `ConfigError`."""
    files = sorted(str(file) for file in folder.rglob(corpus.pattern))
    try:
        rows = load_dataset("parquet", data_files={"test": files}, split="test")
        return list(corpus.documents(rows))
    except (DatasetsError, OSError, ValueError, KeyError) as error:
        raise ConfigError(
            "corpus",
            f"{corpus.repository} in {folder} can't be read ({_first_line(error)}); remove that "
            "folder and fetch it again",
        ) from error


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (lzma.decompress(data) if path.suffix == ".xz" else data).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError("corpus", f"{path}: {error.strerror or 'cannot be read'}") from error
    except lzma.LZMAError as error:
        raise ConfigError("corpus", f"{path} must be a whole .xz file") from error
    except UnicodeDecodeError as error:
        raise ConfigError("corpus", f"{path} must be a text in UTF-8") from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:160]
