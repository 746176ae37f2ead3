"""When a cache is compressed, and to how many entries. Decided from committed tokens alone.

First after the prompt, then, with an interval, at fixed counts of committed tokens. Rounds are cut
so that none crosses such a count, so the same text meets the same compressions whoever drafts:
speculation with a press on the target equals autoregressive decoding with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fastinfer.config import DecodeConfig
from fastinfer.events import Role
from fastinfer.models.base import PressableCache
from fastinfer.presses import PRESSES
from fastinfer.presses.base import Press, keep_best

# A trigger that never comes.
NEVER = 2**62


@dataclass(frozen=True, kw_only=True)
class CompressionPlan:
    """One model's compression in one request.

    `ratio` is the fraction of all tokens covered that is removed; with a `budget` it is not used.
    """

    press: Press
    ratio: float = 0.5
    budget: int | None = None
    interval: int | None = None
    num_sinks: int = 4
    num_recent: int = 17
    in_cache: bool = False

    def entries_to_keep(self, covered: int) -> int:
        """Of a cache that covers so many tokens; sinks and the recent window always fit."""
        wanted = covered - int(covered * self.ratio) if self.budget is None else self.budget
        return max(wanted, self.num_sinks + self.num_recent)

    def next_trigger(self, covered: int, entries: int) -> int:
        """After which count of covered tokens to look again, with so many entries held now."""
        if self.interval is None:
            return NEVER
        spare = 0 if self.budget is None else max(0, self.budget - entries)
        return covered + self.interval + spare


def plan_for(config: DecodeConfig, role: Role) -> CompressionPlan | None:
    """The plan that a request has for a role; None where nothing would ever be dropped."""
    asked = config.compression_of(role)
    if asked is None or not asked.drops:
        return None
    return CompressionPlan(
        press=PRESSES[asked.press],
        ratio=asked.compression_ratio or 0.0,
        budget=asked.max_cache_tokens,
        interval=asked.interval,
        num_sinks=asked.num_sinks,
        num_recent=config.num_recent,
        in_cache=asked.positions == "in_cache",
    )


class Compressor:
    """Watches one cache: when the next compression is due, and carries it out."""

    def __init__(self, plan: CompressionPlan, cache: PressableCache) -> None:
        self.plan = plan
        self.cache = cache
        self.next_trigger = 0  # tokens covered; the first is the prompt, whatever its length
        cache.record_queries(plan.press.num_queries)

    def due(self, covered: int) -> bool:
        """Whether to compress once the cache covers so many tokens."""
        return covered >= self.next_trigger

    def stop(self) -> None:
        """No compression any more: the model has fallen behind for good."""
        self.next_trigger = NEVER
        self.cache.record_queries(0)

    @torch.inference_mode()
    def compress(self) -> bool:
        """Drop what is too much; True where anything was."""
        plan, cache = self.plan, self.cache
        n_keep = plan.entries_to_keep(cache.length)
        dropping = n_keep < cache.num_entries()
        if dropping:
            cache.keep(self._kept(n_keep))
        self.next_trigger = plan.next_trigger(cache.length, cache.num_entries())
        if self.next_trigger == NEVER:
            cache.record_queries(0)
        return dropping

    def _kept(self, n_keep: int) -> list[Tensor]:
        plan = self.plan
        least = plan.num_sinks + plan.num_recent
        budgets = plan.press.layer_budgets(n_keep, self.cache.layer_lengths(), least)
        return [
            keep_best(plan.press.score(view), budget, plan.num_sinks, plan.num_recent)
            for view, budget in zip(self.cache.layer_views(), budgets, strict=True)
        ]
