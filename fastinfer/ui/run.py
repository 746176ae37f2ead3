"""What one press of Generate makes the engine do: warm-up, baseline, then the run itself.

One stream of messages, without threads or gradio, so that a test can walk it step by step. Closing
it closes whichever engine stream is open under it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from fastinfer.config import DecodeConfig
from fastinfer.events import Event, Step
from fastinfer.metrics import RunStats

if TYPE_CHECKING:
    from fastinfer.info import EngineInfo

BASELINE_TOKENS = 128
LEAST_BASELINE_TOKENS = 32
BASELINE_MS = 1000.0  # a slow model's baseline ends here: short enough to wait for, long to time
WARM_UP_TOKENS = 8


class TextEngine(Protocol):
    """The part of `fastinfer.engine.Engine` that the page needs."""

    @property
    def info(self) -> EngineInfo:
        """Preset, models, device and dtype."""
        ...

    def check(self, prompt: str, config: DecodeConfig) -> object:
        """Raise `ConfigError` for what can be refused before decoding."""
        ...

    def stream(self, prompt: str, config: DecodeConfig) -> Generator[Event, None, None]:
        """Decode. Closing the generator frees all that the run holds."""
        ...


@dataclass(frozen=True, kw_only=True)
class Phase:
    """The run enters a phase; `num_tokens` is how many tokens the baseline will make at most."""

    name: Literal["warm-up", "baseline", "decoding"]
    num_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The autoregressive measurement. `tpot_ms` is None where fewer than two tokens came."""

    tpot_ms: float | None
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A step of the baseline, to be shown while it is measured and then forgotten.

    Where the browser has no core of its own it slows the engine. So it must have about as much to
    draw beside the baseline as beside the run, or the two could not be compared.
    """

    text: str
    num_tokens: int  # of the baseline so far
    tpot_ms: float | None  # so far


@dataclass(frozen=True)
class Tick:
    """A round of work that shows nothing. It is there so that Stop acts on it too."""


Message = Phase | Baseline | Preview | Tick | Event


class Runs:
    """Makes runs on one engine, and remembers which methods are warm.

    A first pass through a method pays for allocations and lazy kernels, which would make it look
    slow; so each method first decodes a few tokens that nobody sees.
    """

    def __init__(self, engine: TextEngine) -> None:
        self._engine = engine
        self._warm: set[str] = set()

    def messages(self, prompt: str, config: DecodeConfig) -> Generator[Message, None, None]:
        """Everything that happens, in order. The last message is `Finished` unless closed early."""
        plain = dataclasses.replace(config, method="autoregressive", stop=(), ignore_eos=True)
        for each in (plain, config):
            if each.method not in self._warm:
                yield Phase(name="warm-up")
                yield from self._unseen(prompt, _shortened(each, WARM_UP_TOKENS))
                self._warm.add(each.method)
        if config.method != "autoregressive":
            yield from self._baseline(prompt, _shortened(plain, BASELINE_TOKENS))
        yield Phase(name="decoding")
        with closing(self._engine.stream(prompt, config)) as events:
            yield from events

    def _unseen(self, prompt: str, config: DecodeConfig) -> Generator[Message, None, None]:
        with closing(self._engine.stream(prompt, config)) as events:
            for _ in events:
                yield Tick()

    def _baseline(self, prompt: str, config: DecodeConfig) -> Generator[Message, None, None]:
        yield Phase(name="baseline", num_tokens=config.max_new_tokens)
        stats = RunStats()
        with closing(self._engine.stream(prompt, config)) as events:
            for event in events:
                stats.add(event)
                if isinstance(event, Step):
                    yield Preview(
                        text=event.text,
                        num_tokens=stats.num_tokens,
                        tpot_ms=stats.tpot_ms,
                    )
                if _timed_enough(stats):
                    break
        yield Baseline(tpot_ms=stats.tpot_ms, num_tokens=stats.num_tokens)


def _timed_enough(stats: RunStats) -> bool:
    if stats.first_ms is None or stats.last_ms is None:
        return False
    long = stats.last_ms - stats.first_ms >= BASELINE_MS
    return long and stats.num_tokens >= LEAST_BASELINE_TOKENS


def _shortened(config: DecodeConfig, num_tokens: int) -> DecodeConfig:
    """The same request, at most `num_tokens` long."""
    longest = min(num_tokens, config.max_new_tokens)
    return dataclasses.replace(
        config, max_new_tokens=longest, min_new_tokens=min(config.min_new_tokens, longest)
    )
