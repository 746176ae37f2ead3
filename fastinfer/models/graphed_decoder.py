"""Our decoder with CUDA graphs for short blocks; long ones, the prompt above all, run eagerly.

A graph is bound to the storage of keys and values that it was recorded with. So there is one
storage, kept from request to request and lent to one at a time: to the first that asks while nobody
holds it. It comes back when that request's cache is gone. Requests meanwhile get caches of their
own and run eagerly, with the same results up to rounding. So does a request with a press: each of
its compressions replaces the storage, and a graph of the old one would be recorded for nothing.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fastinfer.models.base import Decoder, KVCache
from fastinfer.models.graphs import Capture, CudaCapture, Graphs
from fastinfer.models.kv_cache import StaticKVCache
from fastinfer.models.pressed_cache import PressedKVCache
from fastinfer.models.static_forward import BucketedKVCache, StaticStep, bucket_for
from fastinfer.models.transformer import TransformerDecoder
from fastinfer.presses.base import Press

# The default ceiling of gamma, and the verifier's own token.
MAX_BLOCK = 17


def with_graphs(decoder: TransformerDecoder) -> Decoder:
    """The decoder as it runs best on its device: with graphs on CUDA, elsewhere as it is."""
    if decoder.device.type != "cuda":
        return decoder
    return GraphedDecoder(decoder, partial(CudaCapture, decoder.device))


class GraphedDecoder:
    """Implements `models.base.Decoder` over one of ours."""

    backend = "fastinfer"

    def __init__(
        self,
        decoder: TransformerDecoder,
        new_capture: Callable[[], Capture],
        max_block: int = MAX_BLOCK,
    ) -> None:
        """Every set of graphs gets a capture of its own, and so a memory pool of its own."""
        self.decoder = decoder
        self.name = decoder.name
        self.vocab_size = decoder.vocab_size
        self.context = decoder.context
        self.prefill_block = decoder.prefill_block
        self.dtype = decoder.dtype
        self.device = decoder.device
        self.max_block = max_block
        self._new_capture = new_capture
        self._step = StaticStep(decoder, max_block)
        self._lending = threading.Lock()
        self._borrower: weakref.ref[StaticKVCache] | None = None
        # What the graphs were recorded with.
        self._storage: Tensor | None = None
        self._table: Tensor | None = None
        self._graphs = Graphs(new_capture())

    @property
    def num_graphs(self) -> int:
        """Graphs that are ready."""
        return len(self._graphs)

    def new_cache(self) -> StaticKVCache:
        """An empty cache for one request: in the lent storage where that is free."""
        with self._lending:
            if self._borrower is not None and self._borrower() is not None:
                return self.decoder.new_cache()
            cache = BucketedKVCache(self.decoder, self._storage)
            self._borrower = weakref.ref(cache)
            return cache

    def check_press(self, press: Press, in_cache: bool) -> None:
        """As the decoder's own."""
        self.decoder.check_press(press, in_cache)

    def new_pressed_cache(self, in_cache: bool) -> PressedKVCache:
        """An empty cache that a press may work on, outside the lent storage: it runs eagerly."""
        return self.decoder.new_pressed_cache(in_cache)

    @torch.inference_mode()
    def forward(self, token_ids: Tensor, cache: KVCache, num_logits: int) -> Tensor:
        """As `TransformerDecoder.forward`."""
        if self._borrower is None or self._borrower() is not cache:
            return self.decoder.forward(token_ids, cache, num_logits)
        assert isinstance(cache, BucketedKVCache), "lent by new_cache"
        count = len(token_ids)
        if count > self.max_block or cache.num_entries() == 0:
            logits = self.decoder.forward(token_ids, cache, num_logits)
            self._prepare(cache)
            return logits
        self.decoder.check_room(cache, count)
        self._place(cache, count)
        self._step.feed(token_ids)
        self._graphs.run(*self._keyed(cache, count))
        cache.advance(count)
        return self._step.logits(count, num_logits)

    def _prepare(self, cache: BucketedKVCache) -> None:
        """Record the steps of every block length that may follow.

        After a prefill, so that the time falls in there: in the rounds it would mislead the gamma
        policy, which learns from their times. Runs write past the cursor only.
        """
        longest = min(self.max_block, self.context - cache.length)
        if longest > 0:
            self._place(cache, longest)
        for count in range(1, longest + 1):
            self._graphs.prepare(*self._keyed(cache, count))

    def _place(self, cache: BucketedKVCache, count: int) -> None:
        """Point the step at the cache's end; graphs of tensors that were replaced are dropped."""
        cache.reserve(cache.num_entries() + count)
        table = self.decoder.rotary.reserve(max(cache.length + count, cache.capacity))
        if cache.storage is not self._storage or table is not self._table:
            self._storage, self._table = cache.storage, table
            self._graphs = Graphs(self._new_capture())
        self._step.move(cache.length, cache.num_entries())

    def _keyed(
        self, cache: BucketedKVCache, count: int
    ) -> tuple[tuple[int, int], Callable[[], None]]:
        bucket = bucket_for(cache.num_entries() + count)
        return (count, bucket), partial(self._step.run, count, bucket, cache.storage)
