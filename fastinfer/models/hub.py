"""The Hugging Face Hub: a model's safetensors, tokenizer and configs, once, into its own cache.

`huggingface_hub` does the work, and reads HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE. Ours
is the answer in seconds where the Hub is out of reach, how far a download is, and one sentence that
says what to do.
"""

from __future__ import annotations

import fnmatch
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import tqdm

# Weights as safetensors only: a pickle can run code. Files in subfolders are other formats, and
# `consolidated` ones the same weights again under another project's names.
WANTED = ("*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.model", "vocab*", "merges.txt")
UNWANTED = ("*/*", "consolidated*")
ANSWER_SECONDS = 4.0  # for one answer; a name may have many addresses, so also for all of them
ATTEMPTS = 3
DEFAULT_REVISION = "main"


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """How far a download is. `note` is a step's name where bytes don't tell."""

    name: str
    done_bytes: int = 0
    total_bytes: int = 0  # 0: not known
    note: str = ""


Progress = Callable[[Fetched], None]


class HubError(Exception):
    """One sentence: what went wrong, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Repo:
    """A model on the Hub at a revision: a branch, a tag or a commit."""

    name: str
    revision: str = DEFAULT_REVISION


def parse(text: str) -> Repo:
    """`owner/name` or `owner/name@revision`."""
    name, _, revision = text.partition("@")
    return Repo(name=name, revision=revision or DEFAULT_REVISION)


def cached(repo: Repo) -> Path | None:
    """The folder of a model that is wholly in the Hub's cache on this machine; asks nobody."""
    try:
        folder = Path(
            snapshot_download(
                repo.name,
                revision=repo.revision,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
                local_files_only=True,
            )
        )
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None
    return folder if _has_weights(folder) else None


def _has_weights(folder: Path) -> bool:
    """Whether every file of weights is there; an older cache does not know what it lacks."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob("*.safetensors"))
    files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return all((folder / file).is_file() for file in files)


def fetch(repo: Repo, progress: Progress | None = None) -> Path:
    """Download what is missing of a model; raises `HubError`.

    A cut connection is taken up where it broke, and a finished file is never fetched again.
    """
    try:
        sizes = _sizes(repo)
        total = sum(sizes.values())
        _check_room(repo, total)
        folder = _snapshot(repo, _counter(repo.name, total, progress))
    except HubError:
        raise
    except Exception as error:  # the HTTP library's own errors have no name that would stay
        raise HubError(explain(repo, error)) from error
    if progress is not None:  # files that were there count as well
        progress(Fetched(name=repo.name, done_bytes=total, total_bytes=total))
    return folder


def _snapshot(repo: Repo, counter: type[tqdm]) -> Path:
    """Every wanted file; a connection that is reset, which `huggingface_hub` gives up on, is made
    again as long as the Hub answers.
    """
    for attempt in range(ATTEMPTS):
        try:
            return Path(
                snapshot_download(
                    repo.name,
                    revision=repo.revision,
                    allow_patterns=list(WANTED),
                    ignore_patterns=list(UNWANTED),
                    etag_timeout=ANSWER_SECONDS,
                    tqdm_class=counter,
                )
            )
        except (OSError, ValueError):  # refusals, no name, no room: another try changes nothing
            raise
        except Exception:
            if attempt == ATTEMPTS - 1:
                raise
            _sizes(repo)
    raise AssertionError("the last attempt returns or raises")


def _sizes(repo: Repo) -> dict[str, int]:
    """Bytes of each file that we load, in one request without retries."""
    info = _in_time(
        lambda: HfApi().model_info(
            repo.name, revision=repo.revision, files_metadata=True, timeout=ANSWER_SECONDS
        )
    )
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    wanted = {name: size for name, size in sizes.items() if is_wanted(name)}
    if not any(name.endswith(".safetensors") for name in wanted):
        raise HubError(
            f"{repo.name} has no weights as safetensors, and others are not loaded, since they can "
            "run code; choose another model"
        )
    return wanted


def is_wanted(path: str) -> bool:
    """Whether a file of a repository is one that we load."""
    named = any(fnmatch.fnmatch(path, pattern) for pattern in WANTED)
    return named and not any(fnmatch.fnmatch(path, pattern) for pattern in UNWANTED)


def explain(repo: Repo, error: Exception) -> str:
    """What a failed download means to the one who asked for it."""
    where = constants.ENDPOINT
    if isinstance(error, GatedRepoError):
        return (
            f"{repo.name} is gated: accept its licence at {where}/{repo.name}, then give a token "
            "of that account in HF_TOKEN"
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{repo.name} has no revision {repo.revision}; try {repo.name}@{DEFAULT_REVISION}"
    if isinstance(error, RepositoryNotFoundError) or _status(error) in (401, 403, 404):
        return (
            f"{where} shows no model {repo.name}; check the name, or give a token in HF_TOKEN "
            "where it is private"
        )
    if isinstance(error, HFValidationError):
        return f"{repo.name} is no name of a model: those read owner/name"
    if isinstance(error, OfflineModeIsEnabled):
        return (
            f"{repo.name} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it; unset "
            "that, or give a local folder"
        )
    if (status := _status(error)) is not None:
        return (
            f"{where} answered {status} for {repo.name}; try again later, or name a mirror in "
            "HF_ENDPOINT"
        )
    return (
        f"{repo.name} is not on this machine, and {where} is out of reach "
        f"({first_line(error)}); check the network, name a mirror in HF_ENDPOINT, or give a local "
        "folder"
    )


def first_line(error: Exception) -> str:
    """An error's first line, at a length that fits a sentence."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:160]


def _status(error: Exception) -> int | None:
    """The HTTP status of a refusal, also of one that `huggingface_hub` wrapped."""
    for cause in (error, error.__cause__):
        if isinstance(cause, HfHubHTTPError):
            return int(cause.response.status_code)
    return None


def _in_time(ask: Callable[[], Any]) -> Any:
    """The answer, or a TimeoutError: a timeout counts per address, and names resolve without one.

    A late answer is dropped with its thread, which is a daemon.
    """
    answer: list[Any] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answer.append(ask())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="hub-answer")
    thread.start()
    thread.join(ANSWER_SECONDS)
    if errors:
        raise errors[0]
    if not answer:
        raise TimeoutError(f"no answer in {ANSWER_SECONDS:g} seconds")
    return answer[0]


def _check_room(repo: Repo, needed: int) -> None:
    """Refuse before the first byte what the disk can't hold."""
    folder = Path(constants.HF_HUB_CACHE)
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise HubError(
            f"{repo.name} takes {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB left; "
            "make room, or name another disk in HF_HOME"
        )


def _counter(name: str, total: int, progress: Progress | None) -> type[tqdm]:
    """A silent bar that reports the bytes on disk; `total` is known before the files are."""

    class Counter(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.bytes = kwargs.get("unit") == "B"
            self.count = int(kwargs.get("initial") or 0)
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:
            # Of the two bars that count bytes, network and disk, the disk's counts what was there.
            if self.bytes:
                self.count += int(n or 0)
                report(self.count)
            return None

    highest = [0]

    def report(count: int) -> None:
        if progress is not None and count > highest[0]:
            highest[0] = count
            progress(Fetched(name=name, done_bytes=min(count, total), total_bytes=total))

    return Counter
