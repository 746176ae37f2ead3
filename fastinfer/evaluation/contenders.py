"""Who runs in a benchmark: our methods, and what people use today on the very same weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import Engine
from fastinfer.events import Role
from fastinfer.metrics import RunStats

# Method names of the benchmark -> options of `DecodeConfig`.
METHODS: dict[str, dict[str, Any]] = {
    "autoregressive": {"method": "autoregressive"},
    "autoregressive-uncached": {"method": "autoregressive", "use_cache": False},
    "speculative": {"method": "speculative"},
    "prompt-lookup": {"method": "speculative", "draft": "prompt-lookup"},
    "cascade": {"method": "cascade"},
}
PEERS = ("transformers", "transformers-assisted")


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every contender is asked for."""

    prompt_ids: tuple[int, ...]
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run. `stats` only where our engine ran it. Times in ms."""

    token_ids: tuple[int, ...]
    ttft_ms: float
    tpot_ms: float
    stats: RunStats | None = None


class Contender(Protocol):
    """A way to decode."""

    name: str

    def run(self, task: Task) -> Measured:
        """Decode once, exactly `max_new_tokens` tokens."""
        ...


class Ours:
    """One of our methods, timed by the engine's own clock."""

    def __init__(self, name: str, engine: Engine, options: dict[str, Any]) -> None:
        self.name = name
        self.engine = engine
        self.options = options

    def run(self, task: Task) -> Measured:
        """Through the engine."""
        config = DecodeConfig.from_mapping(
            {
                **self.options,
                "max_new_tokens": task.max_new_tokens,
                "temperature": task.temperature,
                "seed": task.seed,
                "ignore_eos": True,
            }
        )
        run = self.engine.generate(task.prompt_ids, config)
        assert run.stats.ttft_ms is not None, "a run has a first token"
        return Measured(
            token_ids=run.token_ids,
            ttft_ms=run.stats.ttft_ms,
            tpot_ms=run.stats.tpot_ms or 0.0,
            stats=run.stats,
        )


class _Stamps:
    """A transformers streamer that notes when tokens come. The first call brings the prompt."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.counts: list[int] = []
        self._prompt_seen = False

    def put(self, value: Any) -> None:
        """Token ids, some at a time."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        self.times.append(time.perf_counter())
        self.counts.append(int(value.numel()))

    def end(self) -> None:
        """Nothing to do."""


class Transformers:
    """`generate` of transformers, with or without an assistant, on the models given."""

    def __init__(self, name: str, target: Any, assistant: Any | None = None) -> None:
        self.name = name
        self.target = target
        self.assistant = assistant

    def run(self, task: Task) -> Measured:
        """Through `generate`, its default dynamic cache, and a streamer for the times."""
        import torch

        torch.manual_seed(task.seed)
        ids = torch.tensor([task.prompt_ids], device=self.target.device)
        stamps = _Stamps()
        greedy = task.temperature == 0
        options: dict[str, Any] = {} if greedy else {"temperature": task.temperature}
        if self.assistant is not None:
            options["assistant_model"] = self.assistant
        begin = time.perf_counter()
        output = self.target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=task.max_new_tokens,
            min_new_tokens=task.max_new_tokens,
            do_sample=not greedy,
            top_k=0,
            top_p=1.0,
            streamer=stamps,
            pad_token_id=0,
            **options,
        )
        later = sum(stamps.counts) - stamps.counts[0]
        return Measured(
            token_ids=tuple(output[0, len(task.prompt_ids) :].tolist()),
            ttft_ms=(stamps.times[0] - begin) * 1000.0,
            tpot_ms=(stamps.times[-1] - stamps.times[0]) * 1000.0 / max(1, later),
        )


def our_contenders(
    engine: Engine, methods: Sequence[str], options: dict[str, Any]
) -> list[Contender]:
    """The named methods; raises `ConfigError` for an unknown one or a missing model."""
    made: list[Contender] = []
    for name in methods:
        if name not in METHODS:
            raise ConfigError("methods", f"must be among {', '.join(METHODS)}, not {name!r}")
        made.append(Ours(name, engine, {**options, **METHODS[name]}))
    return made


def peer_contenders(names: Sequence[str], load: Callable[[Role], Any]) -> list[Contender]:
    """The named peers; `load` gives a transformers model of a role on the same weights."""
    made: list[Contender] = []
    for name in names:
        if name not in PEERS:
            raise ConfigError("peers", f"must be among {', '.join(PEERS)}, not {name!r}")
        assistant = load(Role.DRAFT) if name == "transformers-assisted" else None
        made.append(Transformers(name, load(Role.TARGET), assistant))
    return made
