"""A model whose every figure is known by hand, and windows and losses to go with it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fastinfer.decoding.protocols import Compression
from fastinfer.evaluation.perplexity import WindowLoss
from fastinfer.evaluation.windows import Window
from fastinfer.events import CacheSize, Role

NEVER = 2**62


class TwoTokens:
    """The next token is the last one again with probability 3/4. A byte per token covered.

    It writes down each pass, and fails where the loop would not keep its promises: a pass never
    reads what it predicts, and `maintain` sees one token more than the cache covers.
    """

    role = Role.TARGET
    vocab_size = 2

    def __init__(self, context: int = 10_000, interval: int = NEVER) -> None:
        self.context = context
        self.interval = interval
        self.num_tokens = 0
        self.passes: list[tuple[int, int]] = []
        self.maintained: list[int] = []

    def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
        assert len(tokens) <= self.context, "read past the context"
        assert len(tokens) - self.num_tokens >= num_logits, "logits of cached tokens"
        self.passes.append((self.num_tokens, len(tokens)))
        self.num_tokens = len(tokens)
        stay = torch.tensor([[math.log(3.0), 0.0], [0.0, math.log(3.0)]])
        return stay[torch.tensor(tokens[len(tokens) - num_logits :])]

    def rollback(self, num_tokens: int) -> None:
        raise AssertionError("nothing is taken back")

    def cache_size(self) -> CacheSize:
        return CacheSize(self.num_tokens, self.num_tokens, self.num_tokens)

    def room_before_trigger(self, num_tokens: int) -> int:
        due = self.maintained[-1] + self.interval
        assert num_tokens < due, "a block went past a trigger"
        return due - num_tokens

    def maintain(self, tokens: Sequence[int]) -> Compression | None:
        assert self.num_tokens == len(tokens) - 1
        if not self.maintained or len(tokens) - self.maintained[-1] >= self.interval:
            self.maintained.append(len(tokens))
        return None


def window(ids: Sequence[int], first: int) -> Window:
    return Window(document="d", ids=tuple(ids), first=first, num_bytes=len(ids) - first)


def losses(*nats: float, live: float = 8.0) -> list[WindowLoss]:
    return [WindowLoss(nats=n, num_tokens=10, num_bytes=40, live_bytes=live) for n in nats]
