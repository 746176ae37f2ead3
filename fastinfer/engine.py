"""The engine: prompt in, events out.

    engine = load("nano")
    for event in engine.stream("The old man looked at the sea and", DecodeConfig(method="cascade")):
        ...

Weights are shared by all requests; everything else (caches, randomness, gamma) lives in one stream
and goes with it, so streams can be interleaved and closing one early frees all that it held.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastinfer.clock import Clock
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.decoding.gamma import controller_for
from fastinfer.decoding.loop import Committed, Limits, decode
from fastinfer.decoding.proposers import (
    CascadeProposer,
    ModelProposer,
    NoDraft,
    PromptLookupProposer,
)
from fastinfer.decoding.protocols import GammaController, LanguageModel, Proposer
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.verification import Rule, rule_named
from fastinfer.events import Event, Finished, Role, Shadow, Started, Step
from fastinfer.info import EngineInfo
from fastinfer.metrics import RunStats
from fastinfer.models import loading
from fastinfer.models.base import Decoder
from fastinfer.models.chat import chat_ids, has_template, prompt_ids
from fastinfer.models.compression import plan_for
from fastinfer.models.hub import Progress
from fastinfer.models.loading import LoadedModels, Tokenizer, TransformersModel
from fastinfer.models.session import Session
from fastinfer.models.shadow import ShadowMeter
from fastinfer.steps import CacheSize, StepWriter

MAX_RANDOM_SEED = 2**31


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A whole run."""

    text: str
    token_ids: tuple[int, ...]
    events: tuple[Event, ...]
    stats: RunStats


def load(
    preset: str = "nano",
    *,
    target: str | None = None,
    intermediate: str | None = None,
    draft: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    progress: Progress | None = None,
) -> Engine:
    """Load a preset; a Hub name or a folder replaces the model of a role.

    What is not on this machine is downloaded, and `progress` hears how far that is. Raises
    `ConfigError` (of which `ModelLoadError` is one), naming what to change.
    """
    given = {Role.TARGET: target, Role.INTERMEDIATE: intermediate, Role.DRAFT: draft}
    overrides = {role: name for role, name in given.items() if name is not None}
    return Engine(loading.load_models(preset, overrides, dtype, device, progress))


class Engine:
    """Decodes with one set of loaded models."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models
        self._turn = threading.Lock()  # one round computes at a time; streams take turns
        target = models.decoders[Role.TARGET]
        self.info = EngineInfo(
            preset=models.preset,
            models={role: decoder.name for role, decoder in models.decoders.items()},
            dtype=str(target.dtype).removeprefix("torch."),
            device=str(target.device),
            context=target.context,
            backends={role: decoder.backend for role, decoder in models.decoders.items()},
            chat=has_template(models.tokenizer),
            defaults=dict(models.defaults),
        )

    @classmethod
    def from_models(
        cls,
        *,
        target: TransformersModel,
        tokenizer: Tokenizer,
        draft: TransformersModel | None = None,
        intermediate: TransformersModel | None = None,
    ) -> Engine:
        """An engine over causal models that transformers has loaded, all of `tokenizer`'s ids.

        They keep dtype and device. Those that our own decoder covers are copied into it, so that
        they are in memory twice as long as the caller keeps them; the others are put into
        `eval()`, their gradients off. Raises `ModelLoadError`.
        """
        given = {Role.TARGET: target, Role.INTERMEDIATE: intermediate, Role.DRAFT: draft}
        models = {role: model for role, model in given.items() if model is not None}
        return cls(loading.models_in_memory(models, tokenizer))

    @property
    def folders(self) -> dict[Role, Path]:
        """Where the models came from; empty for models that were in memory."""
        return dict(self._models.folders)

    def check(self, prompt: str | Sequence[int], config: DecodeConfig) -> list[int]:
        """The prompt's token ids; raises `ConfigError` for a request that can't be served."""
        if not len(prompt):
            raise ConfigError("prompt", "is empty; give at least one character")
        for role in roles_of(config):
            if role not in self.info.models:
                raise ConfigError(
                    "method" if role is Role.INTERMEDIATE else "draft",
                    f"{config.method} needs a model for the role {role.value}; loaded are "
                    f"{', '.join(self.info.models)}",
                )
        self._check_presses(config)
        ids = self.encode(prompt) if isinstance(prompt, str) else list(prompt)
        vocab_size = self._models.vocab_size
        if unknown := [token_id for token_id in ids if not 0 <= token_id < vocab_size]:
            raise ConfigError(
                "prompt", f"must hold token ids from 0 to {vocab_size - 1}, not {unknown[0]}"
            )
        if len(ids) >= self.info.context:
            raise ConfigError(
                "prompt",
                f"has {len(ids)} tokens; the model reads at most {self.info.context}, and at least "
                "one must be left for the answer",
            )
        return ids

    def _check_presses(self, config: DecodeConfig) -> None:
        """Refuse a press that a model can't have, or a budget that its context can't hold."""
        for role in (*roles_of(config), *own_weights(config)):
            plan = plan_for(config, role)
            if plan is None:
                continue
            decoder = self._decoder(role, config)
            decoder.check_press(plan.press, plan.in_cache)
            most = decoder.context - (plan.interval or 0) - 2
            if plan.in_cache and plan.budget is not None and plan.budget > most:
                raise ConfigError(
                    "max_cache_tokens",
                    f"must be at most {most} here: with press_interval it has to stay inside the "
                    f"{decoder.context} places that {decoder.name} knows",
                )

    def _decoder(self, role: Role, config: DecodeConfig) -> Decoder:
        """Whose weights play a role: with "self" the target's."""
        return self._models.decoders[Role.TARGET if role in own_weights(config) else role]

    def encode(self, text: str) -> list[int]:
        """Token ids, with what the tokenizer puts in front of a text."""
        return prompt_ids(self._models.tokenizer, text)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation for `stream`, the answer to begin after them.

        `messages` are `{"role": "system" | "user" | "assistant", "content": text}`, oldest first.
        Raises `ConfigError("messages", ...)` for a model without a chat template.
        """
        return chat_ids(self._models.tokenizer, messages)

    def stream(
        self, prompt: str | Sequence[int], config: DecodeConfig | None = None
    ) -> Generator[Event, None, None]:
        """`Started`, then a `Step` per round, then `Finished`. The prompt is a text or token ids.

        Raises `ConfigError` at once for a bad request, and FloatingPointError while decoding when a
        model's logits are not finite. Close the iterator to stop early.
        """
        begin = time.perf_counter()
        config = config or DecodeConfig()
        ids = self.check(prompt, config)
        if config.sampling.seed is None:
            sampling = dataclasses.replace(config.sampling, seed=secrets.randbelow(MAX_RANDOM_SEED))
            config = dataclasses.replace(config, sampling=sampling)
        return self._stream(ids, config, time.perf_counter() - begin)

    def generate(
        self, prompt: str | Sequence[int], config: DecodeConfig | None = None
    ) -> Generation:
        """Run to the end: a fold of `stream`."""
        events = tuple(self.stream(prompt, config))
        stats = RunStats()
        for event in events:
            stats.add(event)
        assert stats.finished is not None, "a stream ends with Finished"
        return Generation(
            text=stats.finished.text,
            token_ids=tuple(
                token.id for event in events if isinstance(event, Step) for token in event.tokens
            ),
            events=events,
            stats=stats,
        )

    def _started(self, ids: list[int], config: DecodeConfig) -> Started:
        assert config.sampling.seed is not None, "set by stream()"
        return Started(
            method=config.method,
            rule=config.rule,
            num_prompt_tokens=len(ids),
            max_new_tokens=config.max_new_tokens,
            seed=config.sampling.seed,
            models={role: self.info.models[role] for role in roles_of(config)}
            | {role: f"{self.info.models[Role.TARGET]} (self)" for role in own_weights(config)},
            dtype=self.info.dtype,
            device=self.info.device,
            lossless=config.lossless,
            lossless_reason=config.lossless_reason,
            options=config.to_mapping(),
        )

    def _stream(
        self, ids: list[int], config: DecodeConfig, spent: float
    ) -> Generator[Event, None, None]:
        yield self._started(ids, config)
        clock = Clock(spent, self._turn)
        with clock:
            writer = StepWriter(self._decode, ids, config)
            target = self.session(Role.TARGET, config)
            rounds = self._rounds(target, ids, config, writer)
            shadow = self._shadow(target, ids, config)
        reported = (target, *rounds.proposer.models)
        while True:
            with clock:
                committed = next(rounds.iterator)
            compared = None if shadow is None else shadow.add(committed)
            with clock:
                cache = {
                    m.role: CacheSize(
                        tokens=m.cache_tokens(), bytes=m.cache_bytes(),
                        allocated=m.cache_allocated(),
                    )
                    for m in reported
                }  # fmt: skip
                writer.add(committed, cache, clock.elapsed_ms, compared)
            yield from writer.ready()
            if committed.reason is not None:
                break
        yield Finished(
            reason=committed.reason,
            text=writer.text,
            num_tokens=writer.num_tokens,
            elapsed_ms=clock.elapsed_ms(),
        )

    def _decode(self, ids: list[int]) -> str:
        # The tokenizer's own Rust part: its wrapper costs more than the decoding.
        backend = getattr(self._models.tokenizer, "backend_tokenizer", self._models.tokenizer)
        return str(backend.decode(ids, skip_special_tokens=True))

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that all its models share."""
        return self._models.tokenizer

    @property
    def vocab_size(self) -> int:
        """Real ids: laws have so many entries."""
        return self._models.vocab_size

    def session(self, role: Role, config: DecodeConfig) -> Session:
        """A model with an empty cache, as this request holds it: for measuring beside `stream`."""
        return Session(
            self._decoder(role, config), role, self._models.vocab_size, config.use_cache,
            plan_for(config, role),
        )  # fmt: skip

    def _shadow(self, target: Session, ids: list[int], config: DecodeConfig) -> _Shadow | None:
        """None where nothing is lost or nobody asked."""
        if config.lossless or not config.shadow_every:
            return None
        full = Session(target.decoder, Role.TARGET, target.vocab_size)
        return _Shadow(ShadowMeter(target, full, config.shadow_every), ids, self._turn)

    def _rounds(
        self, target: Session, ids: list[int], config: DecodeConfig, writer: StepWriter
    ) -> _Rounds:
        """Wire the parts of one request."""
        end_ids = self._end_ids(config)
        law = self.law(config, len(ids))
        assert config.sampling.seed is not None, "set by stream()"
        rule = rule_named(config.rule, config.sampling.seed)
        gamma = controller_for(config.gamma)
        proposer = self.proposer(config, law, rule, gamma, lambda role: self.session(role, config))
        limits = Limits(
            max_new_tokens=config.max_new_tokens, end_ids=end_ids, should_stop=writer.push
        )
        iterator = decode(target, proposer, ids, law, rule, gamma, limits)
        return _Rounds(proposer, iterator)

    def _end_ids(self, config: DecodeConfig) -> frozenset[int]:
        return frozenset() if config.ignore_eos else self._models.end_ids

    def law(self, config: DecodeConfig, num_prompt_tokens: int) -> Law:
        """What makes laws of logits in such a request."""
        return Law(
            config.sampling,
            num_prompt_tokens=num_prompt_tokens,
            min_new_tokens=config.min_new_tokens,
            blocked_ids=sorted(self._end_ids(config)),
        )

    def proposer(
        self,
        config: DecodeConfig,
        law: Law,
        rule: Rule,
        gamma: GammaController,
        model: Callable[[Role], LanguageModel],
    ) -> Proposer:
        """Who drafts: composition is the whole difference between the methods."""
        end_ids = self._end_ids(config)
        if config.method == "autoregressive":
            return NoDraft()
        cascade = config.method == "cascade"
        nearest = controller_for(config.inner_gamma) if cascade else gamma
        draft: Proposer
        if config.draft == "prompt-lookup":
            draft = PromptLookupProposer(self._models.vocab_size, nearest)
        else:
            draft = ModelProposer(model(Role.DRAFT), law, rule, nearest, end_ids)
        if not cascade:
            return draft
        middle = model(Role.INTERMEDIATE)
        return CascadeProposer(middle, draft, law, rule, nearest, gamma, config.rounds, end_ids)


def roles_of(config: DecodeConfig) -> tuple[Role, ...]:
    """The roles that a configuration needs a model of its own for."""
    drafts = (Role.DRAFT,) if config.draft == "model" else ()
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


class _Shadow:
    """Follows the committed tokens for a shadow meter. Its time is on nobody's clock."""

    def __init__(self, meter: ShadowMeter, prompt: list[int], turn: threading.Lock) -> None:
        self._meter = meter
        self._tokens = list(prompt)
        self._turn = turn

    def add(self, committed: Committed) -> Shadow | None:
        """A round; what the comparison gave, if it is the turn of one."""
        self._tokens.extend(committed.round.token_ids[: committed.num_tokens])
        with self._turn:
            return self._meter.measure(committed.index, self._tokens, committed.num_tokens)


@dataclass(frozen=True)
class _Rounds:
    proposer: Proposer
    iterator: Iterator[Committed]
