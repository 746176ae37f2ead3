"""Token ids to text pieces: whole characters only, and never a character taken back.

Byte-level tokenizers split characters over tokens. A token that ends inside one shows nothing, and
the token that completes it carries the character. The pieces joined equal the tokenizer's decoding
of all ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

REPLACEMENT = "\ufffd"
WINDOW_IDS = 8  # of a prompt: more than a character's bytes before and after a whole token


class Decode(Protocol):
    """A tokenizer's way back."""

    context_ids: int  # how many ids before an id its text may depend on

    def __call__(self, ids: list[int], /) -> str:
        """The text of these ids."""
        ...


class StreamDecoder:
    """Decodes ids one at a time; some tokenizers need what came before (`context`) for spaces."""

    def __init__(self, decode: Decode, context: Sequence[int] = ()) -> None:
        self._decode = decode
        self._ids = list(context[-WINDOW_IDS:])
        self._shown = self._text()
        if not self._shown.endswith(REPLACEMENT):
            self._shorten(self._shown)

    def _text(self) -> str:
        return self._decode(self._ids)

    def push(self, token_id: int) -> str:
        """The text that this token makes certain."""
        self._ids.append(token_id)
        text = self._text()
        # Trailing replacement characters may still become real ones.
        certain = text.rstrip(REPLACEMENT)
        shown, piece = self._shown, ""
        if not certain.startswith(shown):  # the prompt may have ended inside a character
            shown = shown.rstrip(REPLACEMENT)
        if len(certain) > len(shown) and certain.startswith(shown):
            piece = certain[len(shown) :]
            self._shown = certain
        if self._shown == certain == text and len(self._ids) > 2 * self._decode.context_ids:
            self._shorten(text)
        return piece

    def _shorten(self, text: str) -> None:
        """Keep the last ids as context, where decoding them alone gives the same ending."""
        kept = self._ids[len(self._ids) - self._decode.context_ids :]
        tail = self._decode(kept) if kept else ""
        if REPLACEMENT not in tail and text.endswith(tail):
            self._ids, self._shown = kept, tail

    def flush(self) -> str:
        """What is left at the end: bytes that never became a character, as U+FFFD."""
        text = self._text()
        piece = text[len(self._shown) :] if text.startswith(self._shown) else ""
        self._shown = text
        return piece


class StopText:
    """Finds the earliest stop text in a text that comes in pieces, and says how much is safe to
    show.

    Text is safe when no stop text can begin inside it any more.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._longest = max(map(len, stops), default=0)
        self._text = ""
        self._from = 0  # stop texts are looked for from here
        self.found: int | None = None  # where the earliest one begins

    @property
    def length(self) -> int:
        """Characters seen."""
        return len(self._text)

    def push(self, piece: str, active: bool = True) -> bool:
        """Take in a piece; True once a stop text is complete. Inactive pieces are not searched."""
        self._text += piece
        if not active:
            self._from = len(self._text)
            return False
        if piece and self._stops:
            start = max(self._from, len(self._text) - len(piece) - self._longest + 1)
            hits = [at for stop in self._stops if (at := self._text.find(stop, start)) >= 0]
            self.found = min(hits, default=None)
        return self.found is not None

    @property
    def safe_length(self) -> int:
        """How many characters may be shown."""
        if self.found is not None:
            return self.found
        for start in range(max(self._from, len(self._text) - self._longest + 1), self.length):
            rest = self._text[start:]
            if any(stop.startswith(rest) for stop in self._stops):
                return start
        return self.length
