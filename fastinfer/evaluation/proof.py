"""Prove it: thousands of next tokens, drawn by the real rule, against the target's own law.

The models' laws after the prompt depend on nothing random, so each is computed once and kept. Then
`decoding.rounds.speculate` runs once per draw on them, each time with a seed of its own, exactly as
it does in decoding. What it commits first must follow the law of the target with its whole cache.

The place is that of a round after the prompt, where presses have acted. A block is as short as lets
every tier take part: one token for a draft, two with an intermediate. The gamma policy only decides
how many are drafted, so it plays no part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.config import ConfigError, DecodeConfig, GammaConfig
from fastinfer.decoding.gamma import controller_for
from fastinfer.decoding.protocols import LanguageModel, Proposer
from fastinfer.decoding.rounds import laws_after, speculate
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.token_law import TokenLaw
from fastinfer.decoding.verification import ResidualRule, Rule, rule_named
from fastinfer.engine import Engine
from fastinfer.evaluation.goodness import Fit, fit
from fastinfer.evaluation.remembered import Remembered, RememberedLaw
from fastinfer.events import Compression, Role

BATCH = 100  # draws between two looks at the result
MAX_DRAWS = 100_000


class WrongRule(ResidualRule):
    """Wrong on purpose: after a rejection it draws from the target's law, not from the residual.

    A common mistake. What the draft likes and the target does too then comes too often.
    """

    def replacement(self, target: TokenLaw, draft: TokenLaw) -> TokenLaw:
        """The target's whole law."""
        return target


@dataclass(frozen=True, kw_only=True)
class Proof:
    """How the draws so far fit. `counts` and `law` [vocab] are what `fit` was made from."""

    fit: Fit
    counts: Tensor
    law: Tensor
    num_tested: int  # draws in which the target tested a drafted token
    num_accepted: int  # draws whose token was drafted
    compressed: tuple[Compression, ...]  # what presses did to the prompt's entries


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where draws are made: the prompt, read by every model."""

    tokens: tuple[int, ...]
    law: Law
    truth: Tensor  # [vocab], the law of the target with its whole cache
    target: LanguageModel
    proposer_for: Callable[[Rule], Proposer]
    block: int
    compressed: tuple[Compression, ...]


def prove(
    engine: Engine,
    prompt: str | Sequence[int],
    config: DecodeConfig,
    *,
    draws: int = 4000,
    wrong: bool = False,
) -> Generator[Proof, None, None]:
    """Draw, and tell how the draws fit after every hundred.

    Raises `ConfigError` for a request that the engine refuses, and for a method that verifies
    nothing.
    """
    if not 1 <= draws <= MAX_DRAWS:
        raise ConfigError("draws", f"must be from 1 to {MAX_DRAWS}, not {draws}")
    if config.method == "autoregressive":
        raise ConfigError("method", "must be one that drafts; here there is nothing to verify")
    ids = engine.check(prompt, config)
    if len(ids) < 2:
        raise ConfigError("prompt", "must have two tokens or more, so that a model reads something")
    place = place_at(engine, ids, config)
    seed = config.sampling.seed or 0
    name = config.rule

    def rule(draw: int) -> Rule:
        return WrongRule(seed + draw) if wrong else rule_named(name, seed + draw)

    yield from _draws(place, rule, draws)


def place_at(engine: Engine, ids: Sequence[int], config: DecodeConfig) -> Place:
    """Read the prompt with every model of the request."""
    block = 2 if config.method == "cascade" else 1
    steady = GammaConfig(policy="constant", initial=block)
    inner = GammaConfig(policy="constant", initial=1)
    models: dict[Role, Remembered] = {}

    def model(role: Role) -> Remembered:
        if role not in models:
            models[role] = Remembered(engine.session(role, config), ids)
        return models[role]

    law = RememberedLaw(engine.law(config, len(ids)))
    target = model(Role.TARGET)
    truth = target
    if not config.lossless:
        whole = dataclasses.replace(config, compression=None)
        truth = Remembered(engine.session(Role.TARGET, whole), ids)
    fixed = dataclasses.replace(config, gamma=steady, inner_gamma=inner, rounds=1)

    def proposer_for(rule: Rule) -> Proposer:
        return engine.proposer(fixed, law, rule, controller_for(steady), model)

    proposer_for(rule_named(config.rule, 0))  # so that all of them have read the prompt
    return Place(
        tokens=tuple(ids),
        law=law,
        truth=torch.from_numpy(laws_after(truth, ids, 1, law)[1][0].probs),
        target=target,
        proposer_for=proposer_for,
        block=block,
        compressed=tuple(m.compressed for m in models.values() if m.compressed is not None),
    )


def _draws(
    place: Place, rule_of: Callable[[int], Rule], draws: int
) -> Generator[Proof, None, None]:
    counts = torch.zeros(len(place.truth), dtype=torch.long)
    tested = accepted = 0
    room = place.target.room_before_trigger(len(place.tokens))
    for draw in range(1, draws + 1):
        rule = rule_of(draw)
        done = speculate(
            place.target, place.proposer_for(rule), place.tokens,
            min(place.block, room - 1), place.law, rule,
        )  # fmt: skip
        counts[done.token_ids[0]] += 1
        tested += done.verdict.num_tested > 0
        accepted += done.verdict.num_accepted > 0
        if draw % BATCH == 0 or draw == draws:
            yield Proof(
                fit=fit(counts, place.truth),
                counts=counts.clone(),
                law=place.truth,
                num_tested=tested,
                num_accepted=accepted,
                compressed=place.compressed,
            )
