"""Prompts for a benchmark: the bundled examples, a file, or the files of a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastinfer.config import ConfigError

EXAMPLES = Path(__file__).resolve().parents[2] / "assets" / "examples.json"

# Only the first so many characters per wanted token are encoded: a whole book is slow to encode.
CHARACTERS_PER_TOKEN = 16


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A named text."""

    name: str
    text: str


def load_prompts(source: str) -> list[Prompt]:
    """`examples`, a text file (one prompt), a JSON list of texts, or a folder of .txt files.

    Raises `ConfigError` when there is nothing to read.
    """
    if source == "examples":
        examples = json.loads(_read(EXAMPLES))
        return [Prompt(name=e["name"], text=e["prompt"]) for e in examples]
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
        if files:
            return [Prompt(name=f.stem, text=_read(f)) for f in files]
    elif path.suffix == ".json" and path.is_file():
        return [
            Prompt(name=f"{path.stem}-{i}", text=t)
            for i, t in enumerate(_texts(source, _read(path)), start=1)
        ]
    elif path.is_file():
        return [Prompt(name=path.stem, text=_read(path))]
    raise ConfigError(
        "prompts", f"must be examples, a text file, or a folder of .txt files, not {source!r}"
    )


def _texts(source: str, content: str) -> list[str]:
    try:
        texts = json.loads(content)
    except json.JSONDecodeError:
        texts = None
    if isinstance(texts, list) and texts and all(isinstance(t, str) for t in texts):
        return texts
    raise ConfigError("prompts", f"{source} must be a JSON list of texts")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError("prompts", f"{path}: {error.strerror or 'cannot be read'}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("prompts", f"{path} must be a text in UTF-8") from error


def first_tokens(
    prompts: Sequence[Prompt], encode: Callable[[str], list[int]], limit: int
) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """The first `limit` token ids of each prompt, and a note on each that has fewer."""
    ids: dict[str, tuple[int, ...]] = {}
    notes: list[str] = []
    for prompt in prompts:
        begin = prompt.text[: CHARACTERS_PER_TOKEN * limit]
        tokens = encode(begin)
        if len(tokens) < limit and len(begin) < len(prompt.text):  # very long tokens
            tokens = encode(prompt.text)
        if not tokens:
            raise ConfigError("prompts", f"{prompt.name} is empty; give at least one character")
        if len(tokens) < limit:
            notes.append(f"{prompt.name} has {len(tokens)} tokens, fewer than {limit}: used whole")
        ids[prompt.name] = tuple(tokens[:limit])
    return ids, notes
