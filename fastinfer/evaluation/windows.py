"""Texts cut into windows for teacher forcing: a first part is read, then each token counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastinfer.config import ConfigError
from fastinfer.text import REPLACEMENT

# Enough tokens before a place to know how the text goes on there: no character is longer.
CONTEXT_IDS = 16


@dataclass(frozen=True, kw_only=True)
class Document:
    """A named text; no window crosses from one into another."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Coder:
    """A tokenizer as windows need it. `prefix` is what it puts in front of every text."""

    encode: Callable[[str], list[int]]  # nothing put in front
    decode: Callable[[list[int]], str]  # the text of every id, special ones too
    prefix: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Window:
    """`ids[:first]` are read first, then each of `ids[first:]` is predicted and counts."""

    document: str
    ids: tuple[int, ...]
    first: int
    num_bytes: int  # of the text, in UTF-8, of the tokens that count


def coder_of(tokenizer: Any) -> Coder:
    """A transformers tokenizer as a `Coder`."""
    return Coder(
        # `verbose` would warn that a book is longer than the context.
        encode=lambda text: list(
            tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        ),
        decode=lambda ids: str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)),
        prefix=tuple(tokenizer("")["input_ids"]),
    )


def cut(
    documents: Sequence[Document],
    coder: Coder,
    *,
    context: int,
    stride: int,
    max_windows: int | None = None,
) -> tuple[list[Window], list[str]]:
    """Windows of at most `context` tokens, the last `stride` of which count; and remarks.

    A document's windows follow each other by `stride` tokens, so each token behind the first part
    of the document's first window counts exactly once, and always after as many tokens at least as
    that part has. Of more windows than `max_windows` so many are taken at even distances. Raises
    `ConfigError` for a stride that leaves nothing to read first, and where no text is long enough.
    """
    lead = context - stride - len(coder.prefix)  # tokens of the text itself
    if stride < 1 or lead < 0 or context <= stride:
        raise ConfigError(
            "stride",
            f"must be from 1 to {context - max(1, len(coder.prefix))}, less than the context of "
            f"{context}, not {stride}",
        )
    tokens = [coder.encode(document.text) for document in documents]
    places = [(d, at) for d, ids in enumerate(tokens) for at in range(lead, len(ids), stride)]
    if not places:
        raise ConfigError(
            "corpus",
            f"has no text of more than {lead} tokens, the part of a window that only is read; "
            "give a longer text or a smaller context",
        )
    notes = []
    short = [d.name for d, ids in zip(documents, tokens, strict=True) if len(ids) <= lead]
    if short:
        notes.append(f"left out, having {lead} tokens or fewer: {', '.join(short)}")
    if max_windows is not None and max_windows < len(places):
        notes.append(f"{max_windows} of {len(places)} windows, at even distances")
        places = [places[i * len(places) // max_windows] for i in range(max_windows)]
    windows = []
    for d, at in places:
        end = min(at + stride, len(tokens[d]))
        windows.append(
            Window(
                document=documents[d].name,
                ids=(*coder.prefix, *tokens[d][at - lead : end]),
                first=len(coder.prefix) + lead,
                num_bytes=_bytes_before(coder, tokens[d], end, at - CONTEXT_IDS)
                - _bytes_before(coder, tokens[d], at, at - CONTEXT_IDS),
            )
        )
    return windows, notes


def _bytes_before(coder: Coder, ids: list[int], end: int, start: int) -> int:
    """Bytes of the text from `start` to `end`. A character belongs to the token that completes it,
    so differences of this add up to the whole text."""
    text = coder.decode(ids[max(0, start) : end])
    return len((text if end == len(ids) else text.rstrip(REPLACEMENT)).encode())
