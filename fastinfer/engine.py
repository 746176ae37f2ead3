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
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastinfer import composition
from fastinfer.clock import Clock
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.decoding.protocols import GammaController, LanguageModel, Proposer
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.verification import Rule
from fastinfer.events import Event, Finished, Role, Started, Step
from fastinfer.info import EngineInfo
from fastinfer.metrics import RunStats
from fastinfer.models import loading
from fastinfer.models.apart import apart
from fastinfer.models.chat import chat_ids, has_template, prompt_ids
from fastinfer.models.detokenizer import Detokenizer
from fastinfer.models.hub import Progress
from fastinfer.models.loading import LoadedModels, Tokenizer
from fastinfer.models.session import Session
from fastinfer.steps import StepWriter

if TYPE_CHECKING:
    from fastinfer.models.loading import TransformersModel

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
    return apart(lambda: Engine(loading.load_models(preset, overrides, dtype, device, progress)))


class Engine:
    """Decodes with one set of loaded models."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models
        self._turn = threading.Lock()  # one round computes at a time; streams take turns
        self._detokenizer = Detokenizer(models.tokenizer)
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
        composition.check(self._models, config)
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
            models=composition.names_of(self._models, config),
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
            writer = StepWriter(self._detokenizer, ids, config)
            parts = composition.compose(self._models, config, ids, writer.push)
        reported = (parts.target, *parts.proposer.models)
        while True:
            with clock:
                committed = next(parts.rounds)
                cache = {model.role: model.cache_size() for model in reported}
                shadow = None
                if parts.shadow is not None:  # what a look at the full cache takes is nobody's time
                    with clock.paused():
                        shadow = parts.shadow.add(committed.index, committed.token_ids)
                writer.add(committed, cache, clock.elapsed_ms, shadow)
            yield from writer.ready()
            if committed.reason is not None:
                break
        yield Finished(
            reason=committed.reason,
            text=writer.text,
            num_tokens=writer.num_tokens,
            elapsed_ms=clock.elapsed_ms(),
        )

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
        return composition.session_of(self._models, config, role)

    def law(self, config: DecodeConfig, num_prompt_tokens: int) -> Law:
        """What makes laws of logits in such a request."""
        return composition.law_of(self._models, config, num_prompt_tokens)

    def proposer(
        self,
        config: DecodeConfig,
        law: Law,
        rule: Rule,
        gamma: GammaController,
        model: Callable[[Role], LanguageModel],
    ) -> Proposer:
        """Who drafts in such a request, with the models that `model` gives for the roles."""
        return composition.proposer_of(self._models, config, law, rule, gamma, model)
