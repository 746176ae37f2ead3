"""One request's parts: which models play, what they draft with, and the loop over them.

Composition is the whole difference between the methods; the loop is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastinfer.config import MODEL_DRAFTS, ConfigError, DecodeConfig
from fastinfer.decoding.gamma import controller_for
from fastinfer.decoding.loop import Committed, Limits, decode
from fastinfer.decoding.proposers import (
    CascadeProposer,
    LookupFirstProposer,
    ModelProposer,
    NoDraft,
    PromptLookupProposer,
)
from fastinfer.decoding.protocols import GammaController, LanguageModel, Proposer
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.verification import Rule, rule_named
from fastinfer.events import Role
from fastinfer.models.base import Decoder
from fastinfer.models.compression import plan_for
from fastinfer.models.loading import LoadedModels
from fastinfer.models.session import Session
from fastinfer.models.shadow import ShadowMeter


def roles_of(config: DecodeConfig) -> tuple[Role, ...]:
    """The roles that a configuration needs a model of its own for."""
    drafts = (Role.DRAFT,) if config.draft in MODEL_DRAFTS else ()
    middle = (Role.INTERMEDIATE,) if config.intermediate == "model" else ()
    match config.method:
        case "autoregressive":
            return (Role.TARGET,)
        case "speculative":
            return (*drafts, Role.TARGET)
        case "cascade":
            return (*drafts, *middle, Role.TARGET)


def own_weights(config: DecodeConfig) -> tuple[Role, ...]:
    """The roles that the target's own weights play, over a cache of their own."""
    draft = (Role.DRAFT,) if config.draft == "self" else ()
    middle = (Role.INTERMEDIATE,) if config.intermediate == "self" else ()
    match config.method:
        case "autoregressive":
            return ()
        case "speculative":
            return draft
        case "cascade":
            return (*draft, *middle)


def check(models: LoadedModels, config: DecodeConfig) -> None:
    """Raises `ConfigError` where a role has no model, or a model can't have its press."""
    for role in roles_of(config):
        if role not in models.decoders:
            raise ConfigError(
                "method" if role is Role.INTERMEDIATE else "draft",
                f"{config.method} needs a model for the role {role.value}; loaded are "
                f"{', '.join(models.decoders)}",
            )
    for role in (*roles_of(config), *own_weights(config)):
        plan = plan_for(config, role)
        if plan is None:
            continue
        decoder = decoder_of(models, config, role)
        decoder.check_press(plan.press, plan.in_cache)
        most = decoder.context - (plan.interval or 0) - 2
        if plan.in_cache and plan.budget is not None and plan.budget > most:
            raise ConfigError(
                "max_cache_tokens",
                f"must be at most {most} here: with press_interval it has to stay inside the "
                f"{decoder.context} places that {decoder.name} knows",
            )


def names_of(models: LoadedModels, config: DecodeConfig) -> dict[Role, str]:
    """What each role in use is played by."""
    target = models.decoders[Role.TARGET].name
    return {role: models.decoders[role].name for role in roles_of(config)} | {
        role: f"{target} (self)" for role in own_weights(config)
    }


def decoder_of(models: LoadedModels, config: DecodeConfig, role: Role) -> Decoder:
    """Whose weights play a role: with "self" the target's."""
    return models.decoders[Role.TARGET if role in own_weights(config) else role]


def session_of(models: LoadedModels, config: DecodeConfig, role: Role) -> Session:
    """A fresh session for a role, compressing where the request says so."""
    return Session(
        decoder_of(models, config, role), role, models.vocab_size, config.use_cache,
        plan_for(config, role),
    )  # fmt: skip


def end_ids_of(models: LoadedModels, config: DecodeConfig) -> frozenset[int]:
    """The ids that end the text of such a request."""
    return frozenset() if config.ignore_eos else models.end_ids


def law_of(models: LoadedModels, config: DecodeConfig, num_prompt_tokens: int) -> Law:
    """What makes laws of logits in such a request."""
    return Law(
        config.sampling,
        num_prompt_tokens=num_prompt_tokens,
        min_new_tokens=config.min_new_tokens,
        blocked_ids=sorted(end_ids_of(models, config)),
    )


@dataclass(frozen=True, kw_only=True)
class Parts:
    """One request, ready to run."""

    target: Session
    proposer: Proposer
    rounds: Iterator[Committed]
    shadow: ShadowMeter | None  # where a lossy run is compared with the full cache


def compose(
    models: LoadedModels, config: DecodeConfig, ids: list[int], should_stop: Callable[[int], bool]
) -> Parts:
    """Wire the parts of one request; its seed is set. `should_stop` hears every token."""
    assert config.sampling.seed is not None, "set by the engine"
    law = law_of(models, config, len(ids))
    rule = rule_named(config.rule, config.sampling.seed)
    gamma = controller_for(config.gamma, _draft_cost(config, "speculative"))
    target = session_of(models, config, Role.TARGET)
    proposer = proposer_of(
        models, config, law, rule, gamma, lambda role: session_of(models, config, role)
    )
    limits = Limits(
        max_new_tokens=config.max_new_tokens,
        end_ids=end_ids_of(models, config),
        should_stop=should_stop,
    )
    rounds = decode(target, proposer, ids, law, rule, gamma, limits)
    return Parts(
        target=target, proposer=proposer, rounds=rounds, shadow=_shadow(target, ids, config)
    )


def _shadow(target: Session, ids: list[int], config: DecodeConfig) -> ShadowMeter | None:
    """None where nothing is lost or nobody asked."""
    if config.lossless or not config.shadow_every:
        return None
    full = Session(target.decoder, Role.TARGET, target.vocab_size)
    return ShadowMeter(target, full, config.shadow_every, ids)


def _draft_cost(config: DecodeConfig, method: str) -> float:
    """What to expect of a token drafted in such a method, in plain steps: 0 where nobody knows.

    The target's own weights take as long as a plain step; in a cascade the intermediate verifies
    them, which takes no longer than the target.
    """
    return float(config.method == method and config.draft == "self")


def proposer_of(
    models: LoadedModels,
    config: DecodeConfig,
    law: Law,
    rule: Rule,
    gamma: GammaController,
    model: Callable[[Role], LanguageModel],
) -> Proposer:
    """Who drafts, with the models that `model` gives for the roles."""
    end_ids = end_ids_of(models, config)
    if config.method == "autoregressive":
        return NoDraft()
    cascade = config.method == "cascade"
    inner_cost = _draft_cost(config, "cascade")
    nearest = controller_for(config.inner_gamma, inner_cost) if cascade else gamma
    draft: Proposer
    if config.draft == "prompt-lookup":
        draft = PromptLookupProposer(models.vocab_size, nearest)
    else:
        asked = ModelProposer(model(Role.DRAFT), law, rule, nearest, end_ids)
        draft = LookupFirstProposer(asked) if config.draft == "lookup-first" else asked
    if not cascade:
        return draft
    middle = model(Role.INTERMEDIATE)
    return CascadeProposer(middle, draft, law, rule, nearest, gamma, config.rounds, end_ids)
