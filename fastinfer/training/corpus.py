"""Plain text to token ids for training: reading files, the byte-level BPE, and window sampling."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from fastinfer.config import ConfigError

END_OF_TEXT = "<|endoftext|>"
DOCUMENT_BREAK = "\x0c"
SUFFIXES = (".txt", ".md", ".xz")


def corpus_files(path: Path) -> list[Path]:
    """The text files that `path` names: itself, or every text file of the folder, sorted.

    Raises `ConfigError` when there are none.
    """
    if path.is_file():
        return [path]
    files = sorted(p for p in path.glob("*") if p.suffix in SUFFIXES) if path.is_dir() else []
    if not files:
        raise ConfigError("corpus", f"no text file ({', '.join(SUFFIXES)}) at {path}")
    return files


def read_documents(path: Path) -> Iterator[str]:
    """Documents of a file or folder; inside a file a form feed parts them."""
    for file in corpus_files(path):
        data = file.read_bytes()
        text = (lzma.decompress(data) if file.suffix == ".xz" else data).decode("utf-8", "replace")
        yield from (part.strip() + "\n" for part in text.split(DOCUMENT_BREAK) if part.strip())


def train_tokenizer(documents: Iterator[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE (as GPT-2's and Pythia's) whose id 0 ends a document."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return tokenizer


def end_of_text(tokenizer: Tokenizer) -> int:
    """The id that ends a document."""
    token_id: int | None = tokenizer.token_to_id(END_OF_TEXT)
    assert token_id is not None, "every tokenizer of ours is trained with it"
    return token_id


def encode(tokenizer: Tokenizer, documents: Iterator[str]) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """All documents as one stream of ids, each followed by the end-of-text id."""
    end = end_of_text(tokenizer)
    parts: list[np.ndarray[Any, np.dtype[np.uint16]]] = []
    for encoding in tokenizer.encode_batch(list(documents)):
        parts.append(np.array([*encoding.ids, end], dtype=np.uint16))
    return np.concatenate(parts)


def repeat_passages_(row: np.ndarray[Any, np.dtype[np.int64]], chance: np.random.Generator) -> None:
    """Write one to four passages of 16 to 256 tokens once more, somewhere behind themselves.

    Where text seldom repeats itself, looking far back is learned late; this makes it pay at once.
    """
    for _ in range(chance.integers(1, 5)):
        size = min(int(2 ** chance.uniform(4, 8)), len(row) // 4)
        source = int(chance.integers(0, len(row) - 2 * size + 1))
        copy = int(chance.integers(source + size, len(row) - size + 1))
        row[copy : copy + size] = row[source : source + size].copy()


class Windows:
    """Random non-overlapping windows of the stream, a fresh shuffle each time it is used up.

    The order depends on the seed and the step only, so a resumed run sees what it would have seen.
    """

    def __init__(self, stream: np.ndarray[Any, np.dtype[np.uint16]], seed: int) -> None:
        self.stream = stream
        self.seed = seed
        self._order = lru_cache(maxsize=2)(self._shuffle)

    def _shuffle(
        self, length: int, lap: int, available: int
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.random.default_rng((self.seed, length, lap)).permutation(available)

    def batch(self, first: int, count: int, length: int, repeating: float = 0.0) -> Tensor:
        """Windows number `first` … `first + count - 1`: ids [count, length + 1].

        A share of them, `repeating`, has passages that come twice.
        """
        available = (len(self.stream) - 1) // length
        if available < 1:
            raise ConfigError(
                "corpus", f"needs at least {length + 1} tokens, has {len(self.stream)}"
            )
        rows = []
        for number in range(first, first + count):
            lap, index = divmod(number, available)
            start = int(self._order(length, lap, available)[index]) * length
            row = self.stream[start : start + length + 1].astype(np.int64)
            chance = np.random.default_rng((self.seed, length, number))
            if chance.random() < repeating:
                repeat_passages_(row, chance)
            rows.append(row)
        return torch.from_numpy(np.stack(rows))
