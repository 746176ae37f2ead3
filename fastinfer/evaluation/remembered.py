"""A language model and a law that keep what they have computed: one pass for each continuation,
however often it is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from fastinfer.decoding.sampling import Law
from fastinfer.decoding.token_law import TokenLaw
from fastinfer.events import CacheSize, Compression, Role
from fastinfer.models.session import Session

MEMORY_BYTES = 256_000_000

Key = tuple[tuple[int, ...], int]


class Kept:
    """Tensors [n, vocab] by a continuation and their number of rows; those not asked for the
    longest go where they are too many."""

    def __init__(self, vocab_size: int) -> None:
        self._tensors: OrderedDict[Key, Tensor] = OrderedDict()
        self._most_rows = max(64, MEMORY_BYTES // (4 * vocab_size))
        self._rows = 0

    def get(self, key: Key) -> Tensor | None:
        """The tensor, or None."""
        if key not in self._tensors:
            return None
        self._tensors.move_to_end(key)
        return self._tensors[key]

    def put(self, key: Key, tensor: Tensor) -> None:
        """Keep one more."""
        self._tensors[key] = tensor
        self._rows += len(tensor)
        while self._rows > self._most_rows and len(self._tensors) > 1:
            self._rows -= len(self._tensors.popitem(last=False)[1])


class RememberedLaw(Law):
    """A law for logits that come as the very same tensor again, as those of `Remembered` do.

    Laws are kept as long as their logits are.
    """

    def __init__(self, law: Law) -> None:
        super().__init__(
            law.config,
            num_prompt_tokens=law.num_prompt_tokens,
            min_new_tokens=law.first_free - law.num_prompt_tokens,
            blocked_ids=law.blocked_ids,
        )
        self._known = WeakTensorKeyDictionary()

    def __call__(self, logits: Tensor, tokens: Sequence[int]) -> tuple[TokenLaw, ...]:
        """Laws as `Law` makes them."""
        if logits not in self._known:
            self._known[logits] = super().__call__(logits, tokens)
        laws: tuple[TokenLaw, ...] = self._known[logits]
        return laws


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
        self._known: Kept = Kept(session.vocab_size)
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
        """Logits [num_logits, vocab] after the last prefixes of `tokens`; the very same tensor each
        time."""
        key = (tuple(tokens[self._start :]), num_logits)
        held = self._known.get(key)
        if held is None:
            self._session.rollback(self._start)
            logits = self._session.forward(tokens, num_logits)
            # A copy: what a session gives may be overwritten by its next pass.
            held = logits.to("cpu", torch.float32, copy=True)
            self._known.put(key, held)
            self.num_passes += 1
        return held

    def rollback(self, num_tokens: int) -> None:
        """Nothing to forget: every continuation is its own."""
        assert num_tokens >= self._start, "the prompt stands"

    def cache_size(self) -> CacheSize:
        """What the cache holds now."""
        return self._session.cache_size()

    def room_before_trigger(self, num_tokens: int) -> int:
        """How many tokens may follow before the next compression would be due."""
        return self._session.room_before_trigger(num_tokens)

    def maintain(self, tokens: Sequence[int]) -> Compression | None:
        """Nothing: the press acted once, on the prompt."""
        return None
