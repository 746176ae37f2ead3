"""Many presses on the same windows: what each costs in quality and saves in memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.decoding.protocols import LanguageModel
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.perplexity import WindowLoss, difference, measure, summarise
from fastinfer.evaluation.windows import Window

CONTROL = "random"  # a press that is no better than this one knows nothing


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to hold the cache, by a name and as a request asks for it."""

    name: str
    config: DecodeConfig


Runs = dict[str, list[WindowLoss]]  # variant -> its loss on each window


def run_grid(
    variants: Sequence[Variant],
    windows: Sequence[Window],
    interval: int | None,
    new_model: Callable[[DecodeConfig], LanguageModel],
    progress: Callable[[], None],
) -> tuple[Runs, list[str]]:
    """Every variant on every window; and a remark on each that this model can't have.

    `interval` is that of every press. Raises `ConfigError` where the model can have none of them.
    """
    runs: Runs = {}
    refused: dict[str, ConfigError] = {}
    for variant in variants:
        try:
            runs[variant.name] = measure(
                functools.partial(new_model, variant.config), windows, interval, progress
            )
        except ConfigError as error:
            refused[variant.name] = error
    if not runs:
        raise next(iter(refused.values()))
    return runs, [f"{name} is left out: {error}" for name, error in refused.items()]


def report(variants: Sequence[Variant], runs: Runs) -> dict[str, Any]:
    """The result of each variant, JSON-ready, with its distance from the uncompressed cache and
    from the control at the same size."""
    results: dict[str, Any] = {}
    control = {_size(v): v.name for v in variants if _press(v) == CONTROL}
    for variant in variants:
        if variant.name not in runs:
            continue
        losses = runs[variant.name]
        press = variant.config.compression
        result: dict[str, Any] = {
            "press": press.press if press else None,
            "compression_ratio": press.compression_ratio if press else 0.0,
            "max_cache_tokens": press.max_cache_tokens if press else None,
            **summarise(losses),
        }
        base = runs.get(UNCOMPRESSED)
        if base is not None and press is not None:
            result["over_uncompressed"] = difference(losses, base)
            result["live_share"] = (
                result["mean_live_bytes"] / results[UNCOMPRESSED]["mean_live_bytes"]
            )
        other = control.get(_size(variant))
        if other in runs and press is not None and press.drops and press.press != CONTROL:
            result["over_random"] = difference(losses, runs[other])
        result["nats_by_window"] = [loss.nats for loss in losses]
        results[variant.name] = result
    return results


def _press(variant: Variant) -> str | None:
    press = variant.config.compression
    return press.press if press else None


def _size(variant: Variant) -> tuple[float | None, int | None] | None:
    press = variant.config.compression
    return (press.compression_ratio, press.max_cache_tokens) if press else None


def against_random(results: Mapping[str, Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The variants that lose to the control by two standard errors, and those that neither lose nor
    win by as much."""
    worse, undecided = [], []
    for name, result in results.items():
        against = result.get("over_random")
        if against is None:
            continue
        margin = 2.0 * (against["standard_error"] or 0.0)
        if against["nats_per_token"] > margin:
            worse.append(name)
        elif against["nats_per_token"] >= -margin:
            undecided.append(name)
    return worse, undecided
