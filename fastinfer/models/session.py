"""A model and its cache for one request: the `LanguageModel` that decoding sees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fastinfer.events import Role
from fastinfer.models.base import Decoder

# A prompt is read in blocks of this many tokens: attention's scratch memory stays bounded.
PREFILL_BLOCK = 512


class Session:
    """Feeds whatever suffix of the sequence the cache does not cover yet."""

    def __init__(
        self, decoder: Decoder, role: Role, vocab_size: int, use_cache: bool = True
    ) -> None:
        """`vocab_size` is the number of real ids: rows past it are padding and are cut off.

        Without `use_cache` every pass reads the whole sequence again: a slow baseline that some
        publications compare with, kept to show what it is.
        """
        self.use_cache = use_cache
        self.decoder = decoder
        self.role = role
        self.vocab_size = vocab_size
        self.context = decoder.context
        self.cache = decoder.new_cache()

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence that the cache covers."""
        return self.cache.length

    def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
        """Logits [num_logits, vocab] after each of the last `num_logits` prefixes of `tokens`."""
        if not self.use_cache:
            self.cache.rollback(0)
        fresh = torch.tensor(tokens[self.num_tokens :], dtype=torch.long)
        assert len(fresh) >= num_logits, "the cache holds tokens whose logits are asked for"
        fresh = fresh.to(self.decoder.device)
        while len(fresh) - num_logits > PREFILL_BLOCK:
            self.decoder.forward(fresh[:PREFILL_BLOCK], self.cache, 1)
            fresh = fresh[PREFILL_BLOCK:]
        logits = self.decoder.forward(fresh, self.cache, num_logits)
        return logits if logits.shape[-1] == self.vocab_size else logits[:, : self.vocab_size]

    def rollback(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens."""
        if num_tokens < self.cache.length:
            self.cache.rollback(num_tokens)

    def cache_tokens(self) -> int:
        """Entries held, per layer."""
        return self.cache.num_entries()

    def cache_bytes(self) -> int:
        """Bytes of the entries held, all layers."""
        return self.cache.num_bytes()
