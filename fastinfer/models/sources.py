"""Where a model lies: a folder on this machine, or the Hugging Face Hub through its cache."""

from __future__ import annotations

import os
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from fastinfer.config import ConfigError
from fastinfer.events import Role

# What transformers, huggingface_hub and safetensors raise for files that are missing or broken.
LOAD_ERRORS = (OSError, ValueError, KeyError, ImportError, RuntimeError)

# Weights as safetensors only: a pickle can run code.
WANTED = ("*.safetensors", "*.json", "tokenizer*", "*.model", "vocab*", "merges.txt")
CONNECT_SECONDS = 5.0

# In front of the name of a model that `fastinfer download` makes in the cache folder.
DOWNLOADED = "downloaded:"


class ModelLoadError(ConfigError):
    """A model that can't be loaded; `field` is its role."""


def locate(role: Role, name: str) -> Path:
    """The folder of a model: itself where `name` is one, else a snapshot from the Hub.

    Raises `ModelLoadError` saying what to do.
    """
    if name.startswith(DOWNLOADED):
        return _downloaded(role, name.removeprefix(DOWNLOADED))
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if _looks_like_path(name):
        raise ModelLoadError(
            role.value, f"there is no folder {name}; give a model's folder or its Hub name"
        )
    try:
        return Path(
            snapshot_download(name, allow_patterns=list(WANTED), etag_timeout=CONNECT_SECONDS)
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelLoadError(
            role.value,
            f"{name} is not on this machine and could not be fetched from the Hugging Face Hub; "
            f"check the name and the network, or give a local folder ({_first_line(error)})",
        ) from error


def cache_folder() -> Path:
    """Where downloaded models lie: FASTINFER_CACHE, else a folder in the user's cache."""
    given = os.environ.get("FASTINFER_CACHE")
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fastinfer"


def _downloaded(role: Role, name: str) -> Path:
    folder = cache_folder() / name
    if not folder.is_dir():
        raise ModelLoadError(
            role.value,
            f"{name} is not on this machine yet; fetch it with: "
            f"python -m fastinfer download --preset {name}",
        )
    return folder


def broken_folder(role: Role, folder: Path, error: Exception) -> ModelLoadError:
    """One sentence for the many ways in which a folder may fail to load."""
    return ModelLoadError(
        role.value,
        f"the folder {folder} does not hold a causal language model and its tokenizer as "
        f"transformers saves them ({_first_line(error)})",
    )


def display_name(name: str) -> str:
    """A name for people: the last two parts of a folder, a Hub name as it is."""
    name = name.removeprefix(DOWNLOADED)
    path = Path(name)
    return "/".join(path.parts[-2:]) if path.is_absolute() else name


def _looks_like_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") != 1


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:160]
