"""Data sets of the Hugging Face Hub: which files of them are wanted, and how they get here.

One is fetched once, its test part only, and found in the cache from then on without asking the Hub.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

from fastinfer.config import ConfigError
from fastinfer.evaluation.names import CORPORA

CONNECT_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class HubCorpus:
    """Where a data set's test part lies."""

    repository: str
    revision: str
    pattern: str  # of its parquet files


HUB_CORPORA: Mapping[str, HubCorpus] = {
    "wikitext-2": HubCorpus(
        repository="Salesforce/wikitext",
        revision="main",
        pattern="wikitext-2-raw-v1/test-*.parquet",
    ),
    # The main branch is a script. The Hub's own conversion names its folders `test` or, for data
    # sets as large as this, `partial-test`.
    "pg19": HubCorpus(
        repository="deepmind/pg19", revision="refs/convert/parquet", pattern="*test/*.parquet"
    ),
}


def fetch_corpus(name: str) -> Path:
    """The folder of a data set's test part, from the cache or from the Hub.

    Raises `ConfigError` within seconds where it is in neither.
    """
    if name not in HUB_CORPORA:
        raise ConfigError("dataset", f"must be one of {', '.join(CORPORA)}, not {name!r}")
    corpus = HUB_CORPORA[name]
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
            f"files ({first_line(error)})",
        ) from error


def first_line(error: Exception) -> str:
    """An error in few words."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:160]
