"""Toy language models with laws that can be enumerated, and the wiring to decode with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from scipy import stats
from torch import Tensor

from fastinfer.config import GammaConfig, SamplingConfig
from fastinfer.decoding.gamma import controller_for
from fastinfer.decoding.loop import Committed, Limits, decode
from fastinfer.decoding.proposers import (
    CascadeProposer,
    LookupFirstProposer,
    ModelProposer,
    NoDraft,
    PromptLookupProposer,
)
from fastinfer.decoding.protocols import GammaController, Proposer
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.token_law import TokenLaw
from fastinfer.decoding.verification import CoupledRule, ResidualRule, Rule
from fastinfer.events import CacheSize, Role

Rows = dict[tuple[int, ...], Tensor]


class TableLM:
    """Logits are a random table of the last `order` tokens. Its cache is a list, always checked.

    A cache that holds a token which is no longer in the sequence fails the assertion in `forward`:
    that is the fault of every broken rollback.
    """

    def __init__(
        self,
        role: Role,
        vocab_size: int = 3,
        seed: int = 0,
        order: int = 2,
        context: int = 10_000,
        scale: float = 2.5,
        rows: Rows | None = None,
    ) -> None:
        self.role = role
        self.vocab_size = vocab_size
        self.seed = seed
        self.order = order
        self.context = context
        self.scale = scale
        self.rows: Rows = {} if rows is None else rows
        self.seen: list[int] = []
        self.num_passes = 0

    def fresh(self) -> TableLM:
        """The same table with an empty cache."""
        return TableLM(
            self.role, self.vocab_size, self.seed, self.order, self.context, self.scale, self.rows
        )

    def logits(self, prefix: Sequence[int]) -> Tensor:
        key = tuple(prefix[-self.order :]) if self.order else ()
        if key not in self.rows:
            code = self.seed
            for token in key:
                code = code * 7919 + token + 1
            generator = torch.Generator().manual_seed(code)
            row = torch.randn(self.vocab_size, generator=generator)
            self.rows[key] = row * self.scale
        return self.rows[key]

    @property
    def num_tokens(self) -> int:
        return len(self.seen)

    def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
        assert list(tokens[: len(self.seen)]) == self.seen, "the cache holds another sequence"
        assert len(tokens) - len(self.seen) >= num_logits, "logits of cached tokens were asked for"
        assert len(tokens) <= self.context, "read past the context"
        self.seen = list(tokens)
        self.num_passes += 1
        first = len(tokens) - num_logits + 1
        return torch.stack([self.logits(tokens[:end]) for end in range(first, len(tokens) + 1)])

    def rollback(self, num_tokens: int) -> None:
        del self.seen[num_tokens:]

    def cache_size(self) -> CacheSize:
        count = len(self.seen)
        return CacheSize(tokens=count, bytes=8 * count, allocated=8 * count)

    def room_before_trigger(self, num_tokens: int) -> int:
        return 10**9

    def maintain(self, tokens: Sequence[int]) -> None:
        assert list(tokens[: len(self.seen)]) == self.seen, "the cache holds another sequence"


class Toy:
    """One way of decoding with toy models: `tokens(seed)` runs it once."""

    def __init__(
        self,
        method: str,
        target: TableLM,
        draft: TableLM | None = None,
        intermediate: TableLM | None = None,
        *,
        rule: Callable[[int], Rule] = ResidualRule,
        gamma: GammaConfig | None = None,
        sampling: SamplingConfig | None = None,
        rounds: int = 2,
        prompt: Sequence[int] = (0, 1),
        max_new_tokens: int = 5,
        min_new_tokens: int = 0,
        end_ids: Sequence[int] = (),
    ) -> None:
        self.method = method
        self.target = target
        self.draft = draft
        self.intermediate = intermediate
        self.rule = rule
        self.gamma = gamma or GammaConfig(policy="constant", initial=3)
        self.rounds = rounds
        self.prompt = list(prompt)
        self.max_new_tokens = max_new_tokens
        self.end_ids = frozenset(end_ids)
        self.law = Law(
            sampling or SamplingConfig(),
            num_prompt_tokens=len(self.prompt),
            min_new_tokens=min_new_tokens,
            blocked_ids=list(end_ids),
        )

    def committed(
        self, seed: int, should_stop: Callable[[int], bool] | None = None
    ) -> list[Committed]:
        rule = self.rule(seed)
        limits = Limits(
            max_new_tokens=self.max_new_tokens,
            end_ids=self.end_ids,
            should_stop=should_stop or (lambda token: False),
        )
        gamma = controller_for(self.gamma)
        proposer = self._proposer(rule, gamma)
        return list(
            decode(self.target.fresh(), proposer, self.prompt, self.law, rule, gamma, limits)
        )

    def tokens(self, seed: int) -> tuple[int, ...]:
        done = self.committed(seed)
        return tuple(t for c in done for t in c.round.token_ids[: c.num_tokens])

    def _proposer(self, rule: Rule, gamma: GammaController) -> Proposer:
        if self.method == "autoregressive":
            return NoDraft()
        if self.method == "prompt-lookup":
            return PromptLookupProposer(self.target.vocab_size, gamma)
        assert self.draft is not None
        nearest = controller_for(self.gamma) if self.method == "cascade" else gamma
        draft = ModelProposer(self.draft.fresh(), self.law, rule, nearest, self.end_ids)
        if self.method == "speculative":
            return draft
        if self.method == "lookup-first":
            return LookupFirstProposer(draft)
        assert self.intermediate is not None
        return CascadeProposer(
            self.intermediate.fresh(), draft, self.law, rule, nearest, gamma, self.rounds,
            self.end_ids,
        )  # fmt: skip

    def exact(self) -> dict[tuple[int, ...], float]:
        """The target's own law of the output, by enumeration, one position at a time."""
        result: dict[tuple[int, ...], float] = {}

        def walk(sequence: list[int], prob: float) -> None:
            generated = tuple(sequence[len(self.prompt) :])
            ended = bool(generated) and generated[-1] in self.end_ids
            if len(generated) == self.max_new_tokens or ended:
                result[generated] = prob
                return
            row = self.law(self.target.logits(sequence).unsqueeze(0), sequence)[0].probs
            probs = torch.from_numpy(row).double()
            for token, p in enumerate((probs / probs.sum()).tolist()):
                if p > 0:
                    walk([*sequence, token], prob * p)

        walk(list(self.prompt), 1.0)
        return result


def chi_square_p(toy: Toy, num_samples: int) -> float:
    """p-value of the toy's output over seeds 0 … num_samples - 1 against the target's exact law."""
    exact = toy.exact()
    counts = dict.fromkeys(exact, 0)
    for seed in range(num_samples):
        tokens = toy.tokens(seed)
        if tokens not in counts:
            return 0.0  # the target never says this
        counts[tokens] += 1
    # Merge rare outcomes, so that every expected count is at least 5.
    expected, observed, rare = [], [], [0.0, 0]
    for tokens, prob in exact.items():
        if prob * num_samples < 5:
            rare[0] += prob * num_samples
            rare[1] += counts[tokens]
        else:
            expected.append(prob * num_samples)
            observed.append(counts[tokens])
    if rare[0] > 0:
        expected.append(rare[0])
        observed.append(int(rare[1]))
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


def models(vocab_size: int = 3, order: int = 2) -> tuple[TableLM, TableLM, TableLM]:
    """Target, draft and intermediate with unrelated tables."""
    roles = (Role.TARGET, Role.DRAFT, Role.INTERMEDIATE)
    made = [TableLM(role, vocab_size, seed, order) for seed, role in enumerate(roles, start=11)]
    return made[0], made[1], made[2]


def random_laws(count: int, vocab: int, seed: int) -> Tensor:
    """[count, vocab] float64, some entries exactly zero."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.rand(count, vocab, generator=generator, dtype=torch.float64) ** 3
    raw[raw < 0.02] = 0.0
    raw[:, 0] += 0.01
    return raw / raw.sum(-1, keepdim=True)


def token_laws(probs: Tensor) -> tuple[TokenLaw, ...]:
    """As decoding has them, of rows of probabilities [n, vocab]."""
    return TokenLaw.of_rows(probs.numpy())


def token_law(probs: Tensor) -> TokenLaw:
    """The same of one row [vocab]."""
    return token_laws(probs[None])[0]


def probs_of(laws: Sequence[TokenLaw]) -> Tensor:
    """Rows of probabilities [n, vocab], of laws."""
    return torch.stack([torch.from_numpy(law.probs) for law in laws])


def all_pairs(*values: Sequence[object]) -> list[tuple[object, ...]]:
    """The product, for parametrize."""
    return list(itertools.product(*values))


__all__ = [
    "CoupledRule", "ResidualRule", "TableLM", "Toy", "all_pairs", "chi_square_p", "models",
    "probs_of", "token_laws",
]  # fmt: skip
