"""Who runs in a benchmark: the protocol of a contender, and our own methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import Engine
from fastinfer.evaluation.fused import options_for
from fastinfer.metrics import RunStats


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every contender is asked for."""

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run. `stats` only where our engine ran it. Times in ms.

    `memory_bytes` is what the run held at its peak on top of what was held before it, None where
    the system does not tell.
    """

    token_ids: tuple[int, ...]
    ttft_ms: float
    tpot_ms: float
    stats: RunStats | None = None
    memory_bytes: int | None = None


class Contender(Protocol):
    """A way to decode."""

    name: str

    def run(self, task: Task) -> Measured:
        """Decode once, exactly `max_new_tokens` tokens: no end of text stops it."""
        ...


class Ours:
    """One of our methods, timed by the engine's own clock."""

    def __init__(self, name: str, engine: Engine, options: Mapping[str, Any]) -> None:
        self.name = name
        self.engine = engine
        self.options = options

    def config(self, task: Task) -> DecodeConfig:
        """The request; raises `ConfigError`."""
        return DecodeConfig.from_mapping(
            {
                **self.options,
                "max_new_tokens": task.max_new_tokens,
                "temperature": task.temperature,
                "seed": task.seed,
                "ignore_eos": True,
            }
        )

    def run(self, task: Task) -> Measured:
        """Through the engine."""
        run = self.engine.generate(task.prompt_ids, self.config(task))
        assert run.stats.ttft_ms is not None, "a run has a first token"
        assert run.stats.tpot_ms is not None, "a plan asks for two tokens or more"
        return Measured(
            token_ids=run.token_ids,
            ttft_ms=run.stats.ttft_ms,
            tpot_ms=run.stats.tpot_ms,
            stats=run.stats,
        )


def our_contenders(
    engine: Engine, methods: Sequence[str], options: Mapping[str, Any], tasks: Sequence[Task]
) -> list[Contender]:
    """The named methods, each checked against every task.

    Raises `ConfigError` for a method without its model or a task that does not fit the context.
    """
    made: list[Contender] = []
    for name in methods:
        contender = Ours(name, engine, options_for(name, options))
        for task in tasks:
            engine.check(task.prompt_ids, contender.config(task))
            needed = len(task.prompt_ids) + task.max_new_tokens
            if needed > engine.info.context:
                raise ConfigError(
                    "max_new_tokens",
                    f"and the prompt make {needed} tokens; the model reads at most "
                    f"{engine.info.context}",
                )
        made.append(contender)
    return made
