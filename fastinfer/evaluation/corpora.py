"""Texts to measure a model on: WikiText-2 and PG-19 from the Hub, or plain text on this machine.

A data set is read by the `datasets` library from parquet files: version 4 of that library and later
refuse repositories that load by a script.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from datasets import Dataset, load_dataset
from datasets.exceptions import DatasetsError

from fastinfer.config import ConfigError
from fastinfer.evaluation.hub_corpora import HUB_CORPORA, fetch_corpus, first_line
from fastinfer.evaluation.names import CORPORA
from fastinfer.evaluation.windows import Document

SUFFIXES = (".txt", ".raw", ".xz")


def _lines(rows: Dataset) -> Iterator[Document]:
    # One row a line. The data set keeps a line of nothing but white space as "", and it was " \n".
    # So this is WikiText's own file again, the same text as a local copy of it gives.
    yield Document(name="test", text="".join(line or " \n" for line in rows["text"]))


def _books(rows: Dataset) -> Iterator[Document]:
    for row in rows:
        yield Document(name=row["short_book_title"], text=row["text"])


DOCUMENTS: Mapping[str, Callable[[Dataset], Iterator[Document]]] = {
    "wikitext-2": _lines,
    "pg19": _books,
}


def read_corpus(source: str) -> list[Document]:
    """`wikitext-2`, `pg19`, a text file, or a folder of text files (.txt, .raw, .xz).

    Raises `ConfigError` that says what to do when there is nothing to read.
    """
    if source in DOCUMENTS:
        return read_parquet(source, fetch_corpus(source))
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    else:
        files = [path] if path.is_file() else []
    if not files:
        raise ConfigError(
            "corpus",
            f"must be {', '.join(CORPORA)}, a text file, or a folder of text files "
            f"({', '.join(SUFFIXES)}), not {source!r}",
        )
    return [Document(name=file.name, text=_read(file)) for file in files]


def read_parquet(name: str, folder: Path) -> list[Document]:
    """The documents of a data set whose parquet files lie in `folder`; raises `ConfigError`."""
    files = sorted(str(file) for file in folder.rglob(HUB_CORPORA[name].pattern))
    try:
        rows = load_dataset("parquet", data_files={"test": files}, split="test")
        return list(DOCUMENTS[name](rows))
    except (DatasetsError, OSError, ValueError, KeyError) as error:
        raise ConfigError(
            "corpus",
            f"{name} in {folder} can't be read ({first_line(error)}); remove that folder and "
            "fetch it again",
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
