"""The law of one token: what it is drawn from, and what is left of it after a rejection."""

from __future__ import annotations

import bisect
import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray


class TokenLaw:
    """Probabilities of all tokens, on the CPU, and the likeliest of them.

    Where one token is certain, as in greedy decoding, the array is made for those who ask only.
    """

    __slots__ = ("_probs", "most", "top", "vocab_size")

    def __init__(
        self,
        top: int,  # the likeliest token, and its probability
        most: float,
        vocab_size: int,
        probs: NDArray[np.floating] | None = None,  # [vocab_size]; none of a one-hot law
    ) -> None:
        self.top = top
        self.most = most
        self.vocab_size = vocab_size
        self._probs = probs

    @classmethod
    def of(cls, probs: NDArray[np.floating]) -> TokenLaw:
        """The law with these probabilities [vocab]."""
        top = int(probs.argmax())
        return cls(top, probs.item(top), len(probs), probs)

    @classmethod
    def one_hot(cls, token: int, vocab_size: int) -> TokenLaw:
        """The law under which this token is certain."""
        return cls(token, 1.0, vocab_size)

    @property
    def certain(self) -> bool:
        """Whether no other token can come."""
        return self._probs is None

    @property
    def probs(self) -> NDArray[np.floating]:
        """The probabilities [vocab]. Not to be changed."""
        if self._probs is not None:
            return self._probs
        probs = np.zeros(self.vocab_size, np.float32)
        probs[self.top] = 1.0
        return probs

    def probability(self, token: int) -> float:
        """Of one token."""
        return float(token == self.top) if self._probs is None else self._probs.item(token)

    def at(self, uniform: float) -> int:
        """The token that `uniform` in [0, 1) falls on; never one of probability 0.

        The likeliest token has the first stretch, the others follow in order: more often than not
        one look is enough. Of the others, sums of blocks first, then one block: a whole cumulative
        sum takes longer.
        """
        if uniform < self.most:
            return self.top
        others = self.probs.copy()
        others[self.top] = 0.0
        size, starts = _blocks(self.vocab_size)
        sums = np.add.reduceat(others, starts).tolist()
        if not any(sums):  # rounding alone let `uniform` pass
            return self.top
        block, inside = _find(sums, (uniform - self.most) / (1.0 - self.most))
        start = block * size
        token, _ = _find(others[start : start + size].tolist(), inside)
        return start + token


def residual_law(target: TokenLaw, draft: TokenLaw) -> TokenLaw:
    """Law of the token after a rejection: the part of the target that the draft did not cover.

    Falls back on the target where rounding leaves nothing (the two laws agree).
    """
    if target.certain:  # whatever the draft leaves of it
        return target
    surplus = target.probs - draft.probs
    np.maximum(surplus, 0.0, out=surplus)
    total = surplus.sum()
    if not total > 0:
        return target
    surplus /= total
    return TokenLaw.of(surplus)


@functools.lru_cache(maxsize=8)
def _blocks(vocab: int) -> tuple[int, NDArray[np.intp]]:
    """The size of a block and where each begins: as many entries as blocks, about, so that both
    searches take as long."""
    size = 1 << round(math.log2(vocab) / 2)
    return size, np.arange(0, vocab, size)


def _find(weights: list[float], uniform: float) -> tuple[int, float]:
    """The index that `uniform` falls into, and how far inside it, as a fraction."""
    cumulative = list(itertools.accumulate(weights))
    # Rounding may put the point at the total itself, past the last token.
    point = min(uniform * cumulative[-1], math.nextafter(cumulative[-1], 0.0))
    index = bisect.bisect_right(cumulative, point)
    before = cumulative[index - 1] if index else 0.0
    return index, (point - before) / (cumulative[index] - before)
