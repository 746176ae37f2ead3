"""Prompts for a benchmark: the bundled examples, the lines of a file, or the files of a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fastinfer.config import ConfigError

EXAMPLES = Path(__file__).resolve().parents[2] / "assets" / "examples.json"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A named text."""

    name: str
    text: str


def load_prompts(source: str) -> list[Prompt]:
    """`examples`, a text file (one prompt), a JSON list of texts, or a folder of text files.

    Raises `ConfigError` when there is nothing to read.
    """
    if source == "examples":
        examples = json.loads(EXAMPLES.read_text(encoding="utf-8"))
        return [Prompt(name=e["name"], text=e["prompt"]) for e in examples]
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
        if files:
            return [Prompt(name=f.stem, text=f.read_text(encoding="utf-8")) for f in files]
    elif path.suffix == ".json" and path.is_file():
        texts = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(texts, list) and texts and all(isinstance(t, str) and t for t in texts):
            return [Prompt(name=f"{path.stem}-{i}", text=t) for i, t in enumerate(texts, start=1)]
        raise ConfigError("prompts", f"{source} must be a JSON list of texts")
    elif path.is_file():
        return [Prompt(name=path.stem, text=path.read_text(encoding="utf-8"))]
    raise ConfigError(
        "prompts", f"must be examples, a text file, or a folder of .txt files, not {source!r}"
    )
