"""The same prompt through several configurations, recorded one after another for a replay.

Never at once and never interleaved: each run has the device to itself, so its times are its own.
Every method first decodes a few tokens that nobody sees. From repeat to repeat the order turns
round, so that a machine that slows down favours nobody; speed-ups are taken within a repeat.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.evaluation.benchmark import WARM_UP_TOKENS, first_difference, spread
from fastinfer.events import Event, Step
from fastinfer.metrics import RunStats

MAX_REPEATS = 20


class Streaming(Protocol):
    """The part of an engine that a comparison needs."""

    def stream(self, prompt: str, config: DecodeConfig) -> Generator[Event, None, None]:
        """Decode."""
        ...


@dataclass(frozen=True, kw_only=True)
class Column:
    """One configuration by its name. The first of a comparison is what others are measured by."""

    name: str
    config: DecodeConfig


@dataclass(frozen=True, kw_only=True)
class Recording:
    """One run: its steps in order, and its figures."""

    steps: tuple[Step, ...]
    stats: RunStats
    lossless: bool

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens."""
        return tuple(token.id for step in self.steps for token in step.tokens)

    @property
    def decode_ms(self) -> float:
        """Time from the first token to the last."""
        return self.steps[-1].elapsed_ms - self.steps[0].elapsed_ms

    @property
    def cache_bytes(self) -> int:
        """Bytes of all caches at the end."""
        return sum(self.steps[-1].cache_bytes.values())


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A run goes on: its column, and how many are done of how many. Warm-up has no column."""

    column: str | None
    done: int
    total: int
    num_tokens: int = 0  # committed in this run so far


@dataclass(frozen=True, kw_only=True)
class Against:
    """A column beside the first. `first_difference` is a token's index; None: the same text."""

    speedups: tuple[float, ...]  # one a repeat: decode time of the first / of this
    first_difference: int | None

    @property
    def speedup(self) -> dict[str, float]:
        """Median and quartiles."""
        return spread(self.speedups)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The end: the recordings to replay, and every column's figures beside the first's."""

    columns: tuple[Column, ...]
    recordings: tuple[Recording, ...]  # of the repeat whose speed-up is nearest the median
    against: tuple[Against, ...]  # of the columns after the first
    repeats: int


def compare(
    engine: Streaming, prompt: str, columns: Sequence[Column], repeats: int = 1
) -> Generator[Progress | Compared, None, None]:
    """Run all, and end with `Compared`. Closing it closes the run that is going on.

    Raises `ConfigError` for what the engine refuses, and for texts too short to be timed.
    """
    if not 1 <= repeats <= MAX_REPEATS:
        raise ConfigError("repeats", f"must be from 1 to {MAX_REPEATS}, not {repeats}")
    total = repeats * len(columns)
    yield Progress(column=None, done=0, total=total)
    for column in columns:
        with closing(engine.stream(prompt, _short(column.config))) as events:
            for _ in events:
                yield Progress(column=None, done=0, total=total)
    rows: list[dict[str, Recording]] = []
    for repeat in range(repeats):
        row: dict[str, Recording] = {}
        for column in columns if repeat % 2 == 0 else reversed(columns):
            done = repeat * len(columns) + len(row)
            row[column.name] = yield from _record(engine, prompt, column, done, total)
        rows.append(row)
    yield _compared(columns, rows)


def _short(config: DecodeConfig) -> DecodeConfig:
    longest = min(WARM_UP_TOKENS, config.max_new_tokens)
    return dataclasses.replace(
        config, max_new_tokens=longest, min_new_tokens=min(config.min_new_tokens, longest)
    )


def _record(
    engine: Streaming, prompt: str, column: Column, done: int, total: int
) -> Generator[Progress, None, Recording]:
    """One run. Between its rounds the engine's clock stands still."""
    stats = RunStats()
    steps: list[Step] = []
    with closing(engine.stream(prompt, column.config)) as events:
        for event in events:
            stats.add(event)
            if isinstance(event, Step):
                steps.append(event)
                yield Progress(
                    column=column.name, done=done, total=total, num_tokens=stats.num_tokens
                )
    if stats.tpot_ms is None:
        raise ConfigError(
            "max_new_tokens", f"{column.name} gave {stats.num_tokens} token; two can be timed"
        )
    return Recording(steps=tuple(steps), stats=stats, lossless=column.config.lossless)


def _compared(columns: Sequence[Column], rows: Sequence[dict[str, Recording]]) -> Compared:
    first, *others = (column.name for column in columns)
    against = [
        Against(
            speedups=tuple(speedup(row[first], row[name]) for row in rows),
            first_difference=first_difference(rows[0][first].token_ids, rows[0][name].token_ids),
        )
        for name in others
    ]
    shown = rows[0]
    if against:
        middle = statistics.median_low(against[0].speedups)
        shown = rows[against[0].speedups.index(middle)]
    return Compared(
        columns=tuple(columns),
        recordings=tuple(shown[column.name] for column in columns),
        against=tuple(against),
        repeats=len(rows),
    )


def speedup(base: Recording, other: Recording) -> float:
    """Decode time of one run over another's; per token, where their texts differ in length."""
    assert base.stats.tpot_ms is not None and other.stats.tpot_ms, "recorded runs are timed"
    return base.stats.tpot_ms / other.stats.tpot_ms
