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

import random
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fastinfer.decoding.protocols import Draft
from fastinfer.decoding.token_law import TokenLaw, Uncovered, residual_law


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

    def draw(self, law: TokenLaw, position: int) -> int:
        """A token for `position`."""
        ...

    def verify(self, laws: Sequence[TokenLaw], draft: Draft, position: int) -> Verdict:
        """Judge a block of n that starts at `position` by the target's n + 1 `laws`."""
        ...


def drafted_probs(laws: Sequence[TokenLaw], draft: Draft) -> tuple[list[float], list[float]]:
    """Target and draft probability of each drafted token."""
    ids = draft.token_ids
    target = [law.probability(token) for law, token in zip(laws, ids, strict=False)]
    return target, [law.probability(token) for law, token in zip(draft.laws, ids, strict=True)]


class ResidualRule:
    """Speculative sampling with one random generator for the whole request."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.generator = random.Random(seed)

    def _uniform(self) -> float:
        return self.generator.random()

    def draw(self, law: TokenLaw | Uncovered, position: int) -> int:
        """One uniform draw decides; never a token of probability 0."""
        return law.at(self._uniform())

    def replacement(self, target: TokenLaw, draft: TokenLaw) -> TokenLaw | Uncovered:
        """The law of the token after a rejection, of both models' laws at that place."""
        return residual_law(target, draft)

    def verify(self, laws: Sequence[TokenLaw], draft: Draft, position: int) -> Verdict:
        """Accept while u * draft < target; then the residual's token, or the target's own."""
        count = len(draft)
        if count == 0:
            return Verdict(num_accepted=0, num_tested=0, token_id=self.draw(laws[0], position))
        target, proposed = drafted_probs(laws, draft)
        accepted = 0
        while accepted < count and self._uniform() * proposed[accepted] < target[accepted]:
            accepted += 1
        law: TokenLaw | Uncovered = laws[accepted]
        if accepted < count:
            law = self.replacement(laws[accepted], draft.laws[accepted])
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

    def draw(self, law: TokenLaw, position: int) -> int:
        """The Gumbel-max draw (as an exponential race, which needs no logarithm)."""
        if law.certain:  # whatever the noise
            return law.top
        return int((law.probs / self.noise(position, law.vocab_size).numpy()).argmax())

    def verify(self, laws: Sequence[TokenLaw], draft: Draft, position: int) -> Verdict:
        """A drafted token stands where the target draws the same."""
        count = len(draft)
        own = [self.draw(law, position + i) for i, law in enumerate(laws)]
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
