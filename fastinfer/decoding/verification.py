"""The two lossless rules: how a token is drawn from a law, and how a drafted block is judged.

Residual: Algorithm 1 of arXiv:2211.17192, the same rule as arXiv:2302.01318. Accept token x with
probability min(1, target(x) / draft(x)); after a rejection draw from the normalised
(target - draft)+; after full acceptance draw one more from the target.

Coupled: every model draws by the Gumbel-max trick with noise that depends on the seed and the
position only (arXiv:2408.07978 studies the coupling). A drafted token stands exactly when it is the
one that the target draws itself, and the target's own draw is what is emitted. So the text is that
of autoregressive decoding with the same seed, whatever drafts; acceptance is a little lower than
under the residual rule.

Deviation: the paper compares a uniform draw r <= ratio; here u * draft < target is strict, since u
can be exactly 0 and a token of target probability 0 must never pass.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fastinfer.decoding.protocols import Draft


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a block: its first `num_accepted` tokens stand, then comes `token_id`.

    The three tuples have one entry per drafted token, tested or not.
    """

    num_accepted: int
    num_tested: int
    token_id: int
    target_probs: tuple[float, ...] = ()
    draft_probs: tuple[float, ...] = ()
    accept_probs: tuple[float, ...] = ()


class Rule(Protocol):
    """A lossless rule with its randomness, for one request."""

    def draw(self, law: Tensor, position: int) -> int:
        """A token for `position` from `law` [vocab]."""
        ...

    def verify(self, laws: Tensor, draft: Draft, position: int) -> Verdict:
        """Judge a block that starts at `position` by the target's `laws` [n + 1, vocab]."""
        ...


def residual_law(
    target: Tensor,  # [vocab]
    draft: Tensor,  # [vocab]
) -> Tensor:  # [vocab]
    """Law of the token after a rejection: the part of the target that the draft did not cover.

    Falls back on the target where rounding leaves nothing (the two laws agree).
    """
    surplus = np.maximum(target.numpy() - draft.numpy(), 0.0)  # half the time of tensors
    total = surplus.sum()
    return torch.from_numpy(surplus / total) if total > 0 else target


def drafted_probs(laws: Tensor, draft: Draft) -> tuple[list[float], list[float]]:
    """Target and draft probability of each drafted token."""
    # A few single entries: on a short block plain numbers are cheaper than tensor operations.
    target, proposed = laws.numpy(), draft.probs.numpy()
    rows = list(enumerate(draft.token_ids))
    return [float(target[row]) for row in rows], [float(proposed[row]) for row in rows]


def token_at(law: Tensor, uniform: float) -> int:
    """The token of a law [vocab] that `uniform` in [0, 1) falls on; never one of probability 0.

    The likeliest token has the first stretch, the others follow in order: more often than not one
    look is enough. Of the others, sums of blocks first, then one block: a whole cumulative sum
    takes longer.
    """
    probs = law.numpy()
    top = int(probs.argmax())
    most = float(probs[top])
    if uniform < most:
        return top
    others = probs.copy()
    others[top] = 0.0
    size, starts = _blocks(len(others))
    sums = np.add.reduceat(others, starts).tolist()
    if not any(sums):  # rounding alone let `uniform` pass
        return top
    block, inside = _find(sums, (uniform - most) / (1.0 - most))
    start = block * size
    token, _ = _find(others[start : start + size].tolist(), inside)
    return start + token


@functools.lru_cache(maxsize=8)
def _blocks(vocab: int) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.intp]]]:
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


class ResidualRule:
    """Speculative sampling with one random generator for the whole request."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.generator = random.Random(seed)

    def _uniform(self) -> float:
        return self.generator.random()

    def draw(self, law: Tensor, position: int) -> int:
        """One uniform draw decides; never a token of probability 0."""
        return token_at(law, self._uniform())

    def replacement(self, target: Tensor, draft: Tensor) -> Tensor:
        """The law of the token after a rejection, of both models' laws [vocab] at that place."""
        return residual_law(target, draft)

    def verify(self, laws: Tensor, draft: Draft, position: int) -> Verdict:
        """Accept while u * draft < target; then the residual's token, or the target's own."""
        count = len(draft)
        if count == 0:
            return Verdict(num_accepted=0, num_tested=0, token_id=self.draw(laws[0], position))
        target, proposed = drafted_probs(laws, draft)
        accepted = 0
        while accepted < count and self._uniform() * proposed[accepted] < target[accepted]:
            accepted += 1
        law = laws[accepted]
        if accepted < count:
            law = self.replacement(law, draft.probs[accepted])
        return Verdict(
            num_accepted=accepted,
            num_tested=min(accepted + 1, count),
            token_id=self.draw(law, position + accepted),
            target_probs=tuple(target),
            draft_probs=tuple(proposed),
            accept_probs=tuple(min(1.0, t / d) for t, d in zip(target, proposed, strict=True)),
        )


class CoupledRule:
    """Gumbel-coupled sampling: one noise vector per position, shared by all models."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._noise: OrderedDict[int, Tensor] = OrderedDict()

    def noise(self, position: int, vocab: int) -> Tensor:
        """Exponential noise [vocab] of a position; argmax(law / noise) draws from the law."""
        held = self._noise.get(position)
        if held is None:
            # A splitmix-like step, so that neighbouring seeds and positions share nothing.
            key = (self.seed * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9 + 1) % 2**63
            generator = torch.Generator().manual_seed(key)
            held = torch.empty(vocab, dtype=torch.float64).exponential_(generator=generator)
            self._noise[position] = held
            if len(self._noise) > 256:
                self._noise.popitem(last=False)
        return held

    def draw(self, law: Tensor, position: int) -> int:
        """The Gumbel-max draw (as an exponential race, which needs no logarithm)."""
        return int((law.double() / self.noise(position, law.shape[-1])).argmax())

    def verify(self, laws: Tensor, draft: Draft, position: int) -> Verdict:
        """A drafted token stands where the target draws the same."""
        count = len(draft)
        noise = [self.noise(position + i, laws.shape[-1]) for i in range(count + 1)]
        own = (laws.double() / torch.stack(noise)).argmax(-1).tolist()
        accepted = 0
        while accepted < count and own[accepted] == draft.token_ids[accepted]:
            accepted += 1
        if count == 0:
            return Verdict(num_accepted=0, num_tested=0, token_id=own[0])
        target, proposed = drafted_probs(laws, draft)
        return Verdict(
            num_accepted=accepted,
            num_tested=min(accepted + 1, count),
            token_id=own[accepted],
            target_probs=tuple(target),
            draft_probs=tuple(proposed),
            accept_probs=tuple(
                float(mine == theirs) for mine, theirs in zip(own, draft.token_ids, strict=False)
            ),
        )


def rule_named(name: str, seed: int) -> Rule:
    """The rule of a request: `coupled` or `residual`."""
    return CoupledRule(seed) if name == "coupled" else ResidualRule(seed)
