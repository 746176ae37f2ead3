"""Figures of one run, as a fold of its events. One definition each, used everywhere.

TTFT is the time to the first committed token; prefill is inside it and outside TPOT.
TPOT = (t_last - t_first) / (n - 1), in ms per token; it needs two tokens.
Acceptance = accepted / tested. Mean accepted length = committed / target passes, prefill aside.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fastinfer.events import (
    Compressed,
    Event,
    Finished,
    Origin,
    Role,
    Shadow,
    Stage,
    Started,
    Step,
)


@dataclass
class StageCounts:
    """Sums of `Stage` over a run, for one verifier."""

    num_drafted: int = 0
    num_tested: int = 0
    num_accepted: int = 0
    passes: int = 0
    tested_at: list[int] = field(default_factory=list)  # per position in the block
    accepted_at: list[int] = field(default_factory=list)

    def add(self, stage: Stage) -> None:
        """Count one pass."""
        self.merge(
            StageCounts(
                num_drafted=stage.num_drafted,
                num_tested=stage.num_tested,
                num_accepted=stage.num_accepted,
                passes=1,
                tested_at=[1] * stage.num_tested,
                accepted_at=[1] * stage.num_accepted,
            )
        )

    def merge(self, other: StageCounts) -> None:
        """Add the counts of another run."""
        self.num_drafted += other.num_drafted
        self.num_tested += other.num_tested
        self.num_accepted += other.num_accepted
        self.passes += other.passes
        self.tested_at = _add(self.tested_at, other.tested_at)
        self.accepted_at = _add(self.accepted_at, other.accepted_at)

    @property
    def acceptance(self) -> float | None:
        """Accepted / tested, or None when nothing was tested."""
        return self.num_accepted / self.num_tested if self.num_tested else None

    def to_mapping(self) -> dict[str, Any]:
        """The counts and what follows from them, JSON-ready."""
        return {
            "drafted": self.num_drafted,
            "tested": self.num_tested,
            "accepted": self.num_accepted,
            "passes": self.passes,
            "acceptance": self.acceptance,
            "acceptance_by_position": self.acceptance_by_position,
        }

    @property
    def acceptance_by_position(self) -> list[float]:
        """Share accepted of those that reached each position of the block."""
        padded = [*self.accepted_at, *[0] * (len(self.tested_at) - len(self.accepted_at))]
        return [a / t for a, t in zip(padded, self.tested_at, strict=True)]


def _add(a: list[int], b: list[int]) -> list[int]:
    return [x + y for x, y in itertools.zip_longest(a, b, fillvalue=0)]


@dataclass
class RunStats:
    """The fold. Call `add` with each event in order."""

    started: Started | None = None
    finished: Finished | None = None
    num_tokens: int = 0
    num_rounds: int = 0  # rounds after the prefill
    origins: Counter[Origin] = field(default_factory=Counter)
    stages: dict[Role, StageCounts] = field(default_factory=dict)
    first_ms: float | None = None
    last_ms: float | None = None
    first_burst: int = 0
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    # Block size -> (draft ms, verify ms) of every round after the prefill.
    blocks: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    cache_tokens: dict[Role, int] = field(default_factory=dict)
    cache_bytes: dict[Role, int] = field(default_factory=dict)
    cache_allocated: dict[Role, int] = field(default_factory=dict)
    compressions: Counter[Role] = field(default_factory=Counter)
    compress_ms: float = 0.0
    shadows: list[Shadow] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Take in one event."""
        match event:
            case Started():
                self.started = event
            case Step():
                self._add_step(event)
            case Compressed():
                self.compressions[event.role] += 1
                self.compress_ms += event.compress_ms
            case Finished():
                self.finished = event

    def _add_step(self, step: Step) -> None:
        self.num_tokens += len(step.tokens)
        self.origins.update(token.origin for token in step.tokens)
        self.cache_tokens, self.cache_bytes = step.cache_tokens, step.cache_bytes
        self.cache_allocated = step.cache_allocated
        if step.shadow is not None:
            self.shadows.append(step.shadow)
        self.last_ms = step.elapsed_ms
        if self.first_ms is None:
            self.first_ms = step.elapsed_ms
            self.first_burst = len(step.tokens)
            return
        self.num_rounds += 1
        self.draft_ms += step.draft_ms
        self.verify_ms += step.verify_ms
        size = step.stages[-1].num_drafted if step.stages else 0
        self.blocks.setdefault(size, []).append((step.draft_ms, step.verify_ms))
        for stage in step.stages:
            self.stages.setdefault(stage.role, StageCounts()).add(stage)

    @property
    def ttft_ms(self) -> float | None:
        """Time to the first committed token."""
        return self.first_ms

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first burst, or None with fewer than two tokens."""
        later = self.num_tokens - self.first_burst
        if later < 1 or self.first_ms is None or self.last_ms is None:
            return None
        return (self.last_ms - self.first_ms) / later

    @property
    def tokens_per_second(self) -> float | None:
        """Decode throughput, 1 / TPOT."""
        return 1000.0 / self.tpot_ms if self.tpot_ms else None

    @property
    def mean_accepted_length(self) -> float | None:
        """Committed tokens per target pass after the prefill, the target's own token included."""
        later = self.num_tokens - self.first_burst
        return later / self.num_rounds if self.num_rounds else None

    @property
    def shadow(self) -> Shadow | None:
        """All comparisons with the full cache as one, weighted by positions; None without any."""
        positions = sum(each.num_positions for each in self.shadows)
        if not positions:
            return None
        return Shadow(
            num_positions=positions,
            kl_nats=sum(s.kl_nats * s.num_positions for s in self.shadows) / positions,
            top1_agreement=sum(s.top1_agreement * s.num_positions for s in self.shadows)
            / positions,
        )

    def to_mapping(self) -> dict[str, Any]:
        """The figures, JSON-ready."""
        return {
            "tokens": self.num_tokens,
            "target_passes": self.num_rounds,
            "ttft_ms": self.ttft_ms,
            "tpot_ms": self.tpot_ms,
            "tokens_per_second": self.tokens_per_second,
            "mean_accepted_length": self.mean_accepted_length,
            "draft_ms": self.draft_ms,
            "verify_ms": self.verify_ms,
            "origins": {origin.value: self.origins[origin] for origin in Origin},
            "stages": {role.value: counts.to_mapping() for role, counts in self.stages.items()},
            "cache_tokens": {role.value: n for role, n in self.cache_tokens.items()},
            "cache_bytes": {role.value: n for role, n in self.cache_bytes.items()},
            "cache_allocated": {role.value: n for role, n in self.cache_allocated.items()},
            "compressions": {role.value: n for role, n in self.compressions.items()},
            "compress_ms": self.compress_ms,
            "shadow": None if self.shadow is None else dataclasses.asdict(self.shadow),
            "finish_reason": self.finished.reason if self.finished else None,
        }
