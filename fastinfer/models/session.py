"""A model and its cache for one request: the `LanguageModel` that decoding sees."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fastinfer.events import CacheSize, Compression, Role
from fastinfer.models.base import Decoder, KVCache
from fastinfer.models.compression import NEVER, CompressionPlan, Compressor


class Session:
    """Feeds whatever suffix of the sequence the cache does not cover yet."""

    def __init__(
        self,
        decoder: Decoder,
        role: Role,
        vocab_size: int,
        use_cache: bool = True,
        plan: CompressionPlan | None = None,
    ) -> None:
        """`vocab_size` is the number of real ids: rows past it are padding and are cut off.

        Without `use_cache` every pass reads the whole sequence again: a slow baseline that some
        publications compare with, kept to show what it is. A `plan` compresses the cache, wherever
        `maintain` is called.
        """
        self.use_cache = use_cache
        self.decoder = decoder
        self._on_cpu = decoder.device.type == "cpu"
        self._single = torch.zeros(1, dtype=torch.long)
        self._single_entry = self._single.numpy().data  # quicker to write than an array
        self.role = role
        self.vocab_size = vocab_size
        self._padded = decoder.vocab_size > vocab_size
        self.last_logits: Tensor | None = None  # [num_logits, vocab] of the latest forward
        self.cache: KVCache
        self._compressor: Compressor | None = None
        if plan is None:
            self.cache = decoder.new_cache()
        else:
            assert use_cache, "there is no cache to compress"
            self.cache = pressed = decoder.new_pressed_cache(plan.in_cache)
            self._compressor = Compressor(plan, pressed)

    @property
    def context(self) -> int:
        """Longest sequence that it can read: more where dropped entries gave places back."""
        return self.decoder.context + self.cache.length - self.cache.position

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence that the cache covers."""
        return self.cache.length

    def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
        """Logits [num_logits, vocab] after each of the last `num_logits` prefixes of `tokens`."""
        if not self.use_cache:
            self.cache.rollback(0)
        unseen = tokens[self.num_tokens :]
        left = len(unseen)
        assert left >= num_logits, "the cache holds tokens whose logits are asked for"
        fresh = self._on_device(unseen)
        block = self.decoder.prefill_block
        while left - num_logits > block:
            self.decoder.forward(fresh[:block], self.cache, 1)
            fresh, left = fresh[block:], left - block
        logits = self.decoder.forward(fresh, self.cache, num_logits)
        if self._padded:
            logits = logits[:, : self.vocab_size]
        self.last_logits = logits
        return logits

    def _on_device(self, ids: Sequence[int]) -> Tensor:
        """Token ids [n] where the model is. A single one lies in the same place each time."""
        if len(ids) == 1:
            self._single_entry[0] = ids[0]
            made = self._single
        else:  # by way of numpy: a third of the time that torch takes to read a list
            made = torch.from_numpy(np.array(ids, np.int64))
        return made if self._on_cpu else made.to(self.decoder.device)

    def rollback(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens."""
        if num_tokens < self.cache.length:
            self.cache.rollback(num_tokens)

    def cache_size(self) -> CacheSize:
        """What the cache holds now."""
        cache = self.cache
        return CacheSize(cache.num_entries(), cache.num_bytes(), cache.allocated_bytes())

    def room_before_trigger(self, num_tokens: int) -> int:
        """How many tokens may follow `num_tokens` committed ones before `maintain` is due."""
        if self._compressor is None:
            return NEVER
        return self._compressor.next_trigger - (num_tokens - 1)

    def maintain(self, tokens: Sequence[int]) -> Compression | None:
        """Compress if that is due after `tokens`, all committed; the last is never read here.

        Reads what it has not seen yet, so that a compression depends on nothing but the tokens.
        """
        covered = len(tokens) - 1
        if self._compressor is None or not self._compressor.due(covered):
            return None
        if covered > self.context:
            self._compressor.stop()
            return None
        if self.num_tokens < covered:
            self.forward(tokens[:covered], 1)
        assert self.num_tokens == covered, "only committed tokens are in the cache"
        start = time.perf_counter()
        before = self.cache_size()
        if not self._compressor.compress():
            return None
        after = self.cache_size()
        return Compression(
            role=self.role,
            entries_before=before.tokens, entries_after=after.tokens,
            bytes_before=before.bytes, bytes_after=after.bytes,
            allocated_before=before.allocated, allocated_after=after.allocated,
            compress_ms=(time.perf_counter() - start) * 1000.0,
        )  # fmt: skip
