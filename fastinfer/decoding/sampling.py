"""Logits to laws: the same filters in the same order for every model.

Order, as in transformers: penalties, temperature, top-k, top-p (arXiv:1904.09751), min-p
(arXiv:2407.01082), typical (arXiv:2202.00666). Every verified position gets every filter, with the
history that it would have had if its predecessors had come one at a time. Temperature 0 gives
one-hot laws, so greedy decoding needs no code of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fastinfer.config import SamplingConfig
from fastinfer.decoding.token_law import TokenLaw, largest

# Below this temperature a law is one-hot to float32's precision, and logits would overflow.
GREEDY_BELOW = 1e-5
# A share of probability below this is 0 in float32, which would keep no token at all.
SMALLEST_SHARE = torch.finfo(torch.float32).tiny


class Law:
    """Makes the laws of one request.

    `blocked_ids` can't be drawn while fewer than `min_new_tokens` tokens have been generated.
    """

    def __init__(
        self,
        config: SamplingConfig,
        *,
        num_prompt_tokens: int,
        min_new_tokens: int = 0,
        blocked_ids: Sequence[int] = (),
    ) -> None:
        self.config = config
        self.first_free = num_prompt_tokens + min_new_tokens
        self.num_prompt_tokens = num_prompt_tokens
        self.blocked_ids = list(blocked_ids)
        self._greedy = config.temperature < GREEDY_BELOW
        # A tensor: to divide by a plain number takes twice as long.
        self._temperature = torch.tensor(config.temperature)
        self._penalised = (
            config.repetition_penalty != 1.0
            or config.presence_penalty != 0.0
            or config.frequency_penalty != 0.0
        )

    def __call__(self, logits: Tensor, tokens: Sequence[int]) -> tuple[TokenLaw, ...]:
        """Laws of the tokens that follow each of the last n prefixes of `tokens`.

        Law n - 1 follows all of `tokens`, law 0 all but its last n - 1. `logits` [n, vocab] is
        float32, on any device; the laws are on the CPU, and fetching them is all the waiting for a
        device that a pass needs. Raises FloatingPointError where a row holds NaN or infinity (of
        minus infinity only where nothing else is left: it is probability 0).
        """
        rows, vocab = logits.shape
        first = len(tokens) - rows + 1  # the position that row 0 predicts
        if self._penalised:
            logits = self._penalise(logits, tokens, first)
        if first < self.first_free and self.blocked_ids:
            logits = logits.clone()
            logits[: self.first_free - first, self.blocked_ids] = -torch.inf
        if self._greedy:  # only the largest leave the device
            best, tops = _largest(logits)
            laws = tuple([TokenLaw.one_hot(top, vocab) for top in tops])
        else:
            laws = TokenLaw.of_rows(_filter(logits, self.config, self._temperature).numpy())
            best = [law.most for law in laws]
        if not math.isfinite(sum(best)):  # a bad logit makes its whole row of a softmax NaN
            row = [math.isfinite(value) for value in best].index(False)
            raise FloatingPointError(f"logits for position {first + row} are not finite")
        return laws

    def _penalise(self, logits: Tensor, tokens: Sequence[int], first: int) -> Tensor:
        """Repetition (arXiv:1909.05858) looks at prompt and output, the others at output only."""
        c = self.config
        vocab = logits.shape[-1]
        device = logits.device
        seen = torch.zeros(vocab, device=device)
        ids = torch.tensor(tokens, dtype=torch.long, device=device)
        seen.index_add_(0, ids[:first], torch.ones(first, device=device))
        output = torch.zeros(vocab, device=device)
        start = min(self.num_prompt_tokens, first)
        output.index_add_(0, ids[start:first], torch.ones(first - start, device=device))
        # Row i has also seen the i tokens of the block before it.
        block = functional.one_hot(ids[first:], vocab).float().cumsum(0)  # [rows - 1, vocab]
        block = torch.cat([torch.zeros(1, vocab, device=device), block])
        seen, output = seen + block, output + block  # [rows, vocab]
        scaled = torch.where(
            logits > 0, logits / c.repetition_penalty, logits * c.repetition_penalty
        )
        logits = torch.where(seen > 0, scaled, logits)
        return logits - c.presence_penalty * (output > 0) - c.frequency_penalty * output


def confidences(logits: Tensor, laws: Sequence[TokenLaw]) -> list[float]:
    """How sure a model is at each row of its logits [n, vocab]: its law's largest probability.

    A one-hot law, as every greedy one, is sure of everything and says nothing: there it is the
    largest probability of the plain softmax.
    """
    tops = [law.most for law in laws]
    return tops if min(tops) < 1.0 else _largest(logits.softmax(-1))[0]


def _largest(rows: Tensor) -> tuple[list[float], list[int]]:
    """The largest entry of each row, and its column."""
    if rows.is_cpu:  # numpy has found it before torch has begun
        return largest(rows.numpy())
    best, places = rows.max(-1)
    return best.tolist(), places.tolist()


def _filter(logits: Tensor, c: SamplingConfig, temperature: Tensor) -> Tensor:
    """Temperature and filters on rows of logits; returns normalised laws [n, vocab], on the CPU.

    A row with NaN or infinity in it becomes NaN from end to end.
    """
    if c.temperature != 1.0:
        logits = logits / temperature
    if 0 < c.top_k < logits.shape[-1]:
        kth = logits.topk(c.top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)  # ties with the k-th stay
    probs = logits.softmax(-1)
    if c.top_p < 1.0:
        probs = _top_p(probs, c.top_p)
    if c.min_p > 0.0:
        probs = _keep(probs, probs >= c.min_p * probs.amax(-1, keepdim=True))
    if c.typical_p < 1.0:
        probs = _typical(probs, c.typical_p)
    return probs if probs.is_cpu else probs.cpu()


def _keep(probs: Tensor, keep: Tensor) -> Tensor:
    kept = probs * keep
    normalised: Tensor = kept / kept.sum(-1, keepdim=True)
    return normalised


def _top_p(probs: Tensor, top_p: float) -> Tensor:
    """The likeliest tokens, up to and with the one that crosses `top_p`."""
    sorted_probs, order = probs.sort(stable=True, dim=-1, descending=True)
    before = sorted_probs.cumsum(-1) - sorted_probs
    keep = torch.zeros_like(probs, dtype=torch.bool).scatter(
        -1, order, before < max(top_p, SMALLEST_SHARE)
    )
    return _keep(probs, keep)


def _typical(probs: Tensor, mass: float) -> Tensor:
    """The tokens whose surprise is nearest the entropy, up to and with the one crossing `mass`."""
    surprise = -probs.log()
    entropy = torch.where(probs > 0, probs * surprise, 0.0).sum(-1, keepdim=True)
    _, order = (surprise - entropy).abs().sort(stable=True, dim=-1)
    sorted_probs = probs.gather(-1, order)
    before = sorted_probs.cumsum(-1) - sorted_probs
    keep = torch.zeros_like(probs, dtype=torch.bool).scatter(
        -1, order, before < max(mass, SMALLEST_SHARE)
    )
    return _keep(probs, keep & (probs > 0))
