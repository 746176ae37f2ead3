"""A language model that keeps what it has computed: one pass for each continuation, however often
it is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from fastinfer.events import Compression, Role
from fastinfer.models.session import Session

MEMORY_BYTES = 256_000_000


class Remembered:
    """A session that has read a prompt, for drawing again and again from that place.

    The prompt's last token is never in its cache: it is read again with each continuation. So the
    place is that of a round in decoding, a press having acted on all before that token.
    """

    def __init__(self, session: Session, prompt: Sequence[int]) -> None:
        assert len(prompt) >= 2, "something to press, and a token to go on from"
        self.role: Role = session.role
        self.vocab_size = session.vocab_size
        self._session = session
        self._start = len(prompt) - 1
        self._rows: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        self._most_rows = max(64, MEMORY_BYTES // (4 * session.vocab_size))
        self.num_passes = 0
        session.forward(prompt[:-1], 1)
        self.compressed: Compression | None = session.maintain(prompt)

    @property
    def context(self) -> int:
        """Longest sequence that it can read."""
        return self._session.context

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence that the cache is sure to cover."""
        return self._start

    def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
        """Logits [num_logits, vocab] after the last prefixes of `tokens`, from memory if known."""
        first = len(tokens) - num_logits + 1
        keys = [tuple(tokens[self._start : end]) for end in range(first, len(tokens) + 1)]
        if not all(key in self._rows for key in keys):
            self._compute(tokens, keys)
        for key in keys:
            self._rows.move_to_end(key)
        rows = torch.stack([self._rows[key] for key in keys])
        while len(self._rows) > self._most_rows:
            self._rows.popitem(last=False)
        return rows

    def _compute(self, tokens: Sequence[int], keys: Sequence[tuple[int, ...]]) -> None:
        self._session.rollback(self._start)
        logits = self._session.forward(tokens, len(keys)).to("cpu", torch.float32)
        # A row of its own each: what the session gave may be overwritten by its next pass.
        self._rows.update(zip(keys, logits.clone().unbind(), strict=True))
        self.num_passes += 1

    def rollback(self, num_tokens: int) -> None:
        """Nothing to forget: every continuation is its own."""
        assert num_tokens >= self._start, "the prompt stands"

    def cache_tokens(self) -> int:
        """Entries held, per layer."""
        return self._session.cache_tokens()

    def cache_bytes(self) -> int:
        """Bytes of the entries held, all layers."""
        return self._session.cache_bytes()

    def cache_allocated(self) -> int:
        """Bytes kept in memory for the cache."""
        return self._session.cache_allocated()

    def room_before_trigger(self, num_tokens: int) -> int:
        """How many tokens may follow before the next compression would be due."""
        return self._session.room_before_trigger(num_tokens)

    def maintain(self, tokens: Sequence[int]) -> Compression | None:
        """Nothing: the press acted once, on the prompt."""
        return None
