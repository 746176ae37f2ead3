"""Figures of a run as words for the view's places, and as heights for its bars. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastinfer.evaluation.benchmark import costs
from fastinfer.events import Origin, Role, Started
from fastinfer.metrics import RunStats
from fastinfer.ui import labels

STAGE_ROLES = (Role.TARGET, Role.INTERMEDIATE)  # who verifies
MAX_BARS = 16  # positions of a block that the bars show


@dataclass(frozen=True, kw_only=True)
class Fullness:
    """What a press left of one model's cache."""

    entries: int
    uncompressed: int  # entries that it would hold without a press

    @property
    def share(self) -> float | None:
        """Kept / uncompressed; None for an empty cache."""
        return self.entries / self.uncompressed if self.uncompressed else None


def speed_words(stats: RunStats, baseline_ms: float | None) -> dict[str, str]:
    """The large figures and the counts of the legend."""
    spent_ms = stats.draft_ms + stats.verify_ms
    words = {
        "ttft": labels.milliseconds(stats.ttft_ms),
        "tpot": labels.milliseconds(stats.tpot_ms),
        "speed": labels.rate(stats.tokens_per_second),
        "speedup": labels.times(_speedup(stats, baseline_ms)),
        "length": labels.decimal(stats.mean_accepted_length),
        "drafting": labels.percent(stats.draft_ms / spent_ms if spent_ms else None),
    }
    for role in STAGE_ROLES:
        counts = stats.stages.get(role)
        words[f"accepted.{role}"] = labels.percent(counts.acceptance if counts else None)
    for origin in Origin:
        words[f"count.{origin}"] = f"{stats.origins[origin]:,}"
    for role, entries in stats.cache_tokens.items():
        words[f"now.{role}"] = f"{entries:,} · {labels.megabytes(stats.cache_bytes[role])}"
    return words


def cost_words(
    stats: RunStats, baseline_ms: float | None, fullness: Fullness | None
) -> dict[str, str]:
    """The smaller figures: what theory says of this run, and what a press did."""
    theory = costs([stats], baseline_ms) if baseline_ms else {}
    shadow = stats.shadow
    return {
        "c": labels.decimal(theory.get("c"), 3),
        "predicted": labels.times(theory.get("predicted_speedup")),
        "achieved": labels.times(_speedup(stats, baseline_ms)),
        "kept": labels.percent(fullness.share if fullness else None),
        "shadow.kl": labels.nats(shadow.kl_nats if shadow else None),
        "shadow.top1": labels.percent(shadow.top1_agreement if shadow else None),
    }


def acceptance_bars(stats: RunStats) -> dict[str, list[list[float]]]:
    """For each verifier, [share accepted, tokens tested] at each position of its block."""
    bars: dict[str, list[list[float]]] = {}
    for role, counts in stats.stages.items():
        shares = [round(share, 3) for share in counts.acceptance_by_position[:MAX_BARS]]
        bars[role.value] = [
            [share, tested] for share, tested in zip(shares, counts.tested_at, strict=False)
        ]
    return bars


def model_words(started: Started, backends: Mapping[Role, str]) -> dict[str, str]:
    """Which model plays each role, and whose forward it uses."""
    words = {"dtype": started.dtype, "device": started.device}
    for role in labels.ROLE_ORDER:
        words[f"model.{role}"] = started.models.get(role, labels.NOTHING)
        words[f"decoder.{role}"] = _decoder(role, started, backends)
    return words


def _decoder(role: Role, started: Started, backends: Mapping[Role, str]) -> str:
    # A role that the target's own weights play is run by the target's forward.
    borrowed = started.options.get(role.value) == "self"
    backend = backends.get(Role.TARGET if borrowed else role, "")
    in_use = role in started.models and backend
    return labels.BACKENDS.get(backend, backend) if in_use else labels.NOTHING


def _speedup(stats: RunStats, baseline_ms: float | None) -> float | None:
    return baseline_ms / stats.tpot_ms if stats.tpot_ms and baseline_ms else None
