"""The law of one token: what it is drawn from, and what is left of it after a rejection."""

from __future__ import annotations

import functools
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
    def of_rows(cls, rows: NDArray[np.floating]) -> tuple[TokenLaw, ...]:
        """The laws with these probabilities [n, vocab]."""
        vocab_size = rows.shape[-1]
        best, tops = largest(rows)
        return tuple([cls(top, best[i], vocab_size, rows[i]) for i, top in enumerate(tops)])

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
        one look is enough.
        """
        if uniform < self.most:
            return self.top
        others = self.probs.copy()
        others[self.top] = 0.0
        token = _pick(others, (uniform - self.most) / (1.0 - self.most))
        return self.top if token is None else token  # rounding alone let `uniform` pass


class Uncovered:
    """The law of the token after a rejection: the part of the target that the draft did not cover,
    (target - draft)+, normalised.

    The target's own where rounding leaves nothing (the two laws agree).
    """

    __slots__ = ("_target", "_weights")

    def __init__(self, target: TokenLaw, draft: TokenLaw) -> None:
        self._target = target
        self._weights = target.probs - draft.probs
        np.maximum(self._weights, 0.0, out=self._weights)

    @property
    def probs(self) -> NDArray[np.floating]:
        """The probabilities [vocab]. A draw does without them."""
        total = self._weights.sum()
        return self._weights / total if total > 0 else self._target.probs

    def at(self, uniform: float) -> int:
        """The token that `uniform` in [0, 1) falls on; never one of probability 0."""
        token = _pick(self._weights, uniform)
        return self._target.at(uniform) if token is None else token


def residual_law(target: TokenLaw, draft: TokenLaw) -> TokenLaw | Uncovered:
    """Law of the token after a rejection. Of a certain target it is the target, whatever the draft
    leaves of it."""
    return target if target.certain else Uncovered(target, draft)


def largest(rows: NDArray[np.floating]) -> tuple[list[float], list[int]]:
    """The largest entry of each row [n, columns], and its column."""
    columns: list[int] = rows.argmax(-1).tolist()
    # By index: to go through an array as through a list takes longer.
    return [rows.item(row, column) for row, column in enumerate(columns)], columns


def _pick(weights: NDArray[np.floating], uniform: float) -> int | None:
    """The index that `uniform` falls on, each as wide as its weight; None where all are 0.

    Sums of blocks first, then one block: a whole cumulative sum takes longer.
    """
    size, starts = _blocks(len(weights))
    sums = np.add.reduceat(weights, starts).tolist()
    if not any(sums):
        return None
    block, inside = _find(sums, uniform)
    start = block * size
    return start + _find(weights[start : start + size].tolist(), inside)[0]


@functools.lru_cache(maxsize=8)
def _blocks(vocab: int) -> tuple[int, NDArray[np.intp]]:
    """The size of a block and where each begins: as many entries as blocks, about, so that both
    searches take as long."""
    size = 1 << round(math.log2(vocab) / 2)
    return size, np.arange(0, vocab, size)


def _find(weights: list[float], uniform: float) -> tuple[int, float]:
    """The index that `uniform` falls into, of a weight above 0, and how far inside, as a fraction.

    Caller's duty: one weight is above 0.
    """
    point = uniform * sum(weights)
    for index, weight in enumerate(weights):
        if point < weight:
            return index, point / weight
        point -= weight
    # Rounding put the point at the total itself.
    last = max(index for index, weight in enumerate(weights) if weight > 0)
    return last, math.nextafter(1.0, 0.0)
