"""Perplexity by teacher forcing, with or without a press that acts as it does in decoding.

A window's first part is the prompt: it is read whole, then the press acts. The rest is fed as if
it had been decoded: the press acts at the same numbers of committed tokens, and what a token is
predicted from was computed before that token was read. Between two actions a block of tokens goes
through the model at once, which is what one token at a time would give, for attention is causal.

The blocks do not depend on the press, so a press that removes nothing gives the very same numbers
as none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fastinfer.config import ConfigError
from fastinfer.decoding.protocols import LanguageModel
from fastinfer.evaluation.windows import Window

# Logits of so many tokens are held at once.
BLOCK = 256
TWO_SIDED_95 = 1.96  # standard errors


@dataclass(frozen=True, kw_only=True)
class WindowLoss:
    """What a window's counted tokens cost."""

    nats: float  # their sum
    num_tokens: int
    num_bytes: int
    live_bytes: float  # of the cache, mean over these tokens


def measure(
    new_model: Callable[[], LanguageModel],
    windows: Sequence[Window],
    interval: int | None,
    progress: Callable[[], None] = lambda: None,
) -> list[WindowLoss]:
    """The loss of each window, each with a model whose cache is empty.

    `interval` is the press's, so that blocks end where it acts; the same must be given for the
    uncompressed run that is compared with. Raises `ConfigError` for a window that is longer than
    the model can read, FloatingPointError for logits that are not finite.
    """
    losses = []
    for window in windows:
        losses.append(window_loss(new_model(), window, interval))
        progress()
    return losses


def window_loss(model: LanguageModel, window: Window, interval: int | None) -> WindowLoss:
    """Feed one window: the first part as a prompt, the rest as committed tokens."""
    nats = live = 0.0
    for losses, cache_bytes in _blocks(model, window.ids, window.first, interval):
        nats += float(losses.sum())
        live += len(losses) * cache_bytes
    tokens = len(window.ids) - window.first
    return WindowLoss(
        nats=nats, num_tokens=tokens, num_bytes=window.num_bytes, live_bytes=live / tokens
    )


def token_nats(
    model: LanguageModel, ids: Sequence[int], first: int, interval: int | None
) -> list[float]:
    """The loss of each of `ids[first:]`, one by one, after `ids[:first]` as a prompt.

    Raises as `measure` does.
    """
    return [
        value for losses, _ in _blocks(model, ids, first, interval) for value in losses.tolist()
    ]


def _blocks(
    model: LanguageModel, ids: Sequence[int], first: int, interval: int | None
) -> Iterator[tuple[Tensor, float]]:
    """The losses [n] of the tokens behind the first part, block by block, and the bytes that the
    cache held for them on average.
    """
    every = interval or sys.maxsize
    _require(first <= model.context, model, ids)
    logits = model.forward(ids[:first], 1)
    yield _nats(model, logits, ids[first : first + 1]), float(model.cache_size().bytes)
    committed = start = first + 1
    model.maintain(ids[:committed])
    while committed < len(ids):
        # The cache covers all committed tokens but the last, which predicts the next one.
        count = min(
            BLOCK,
            every - (committed - start) % every,
            model.room_before_trigger(committed),
            model.context - (committed - 1),
            len(ids) - committed,
        )
        _require(count > 0, model, ids)
        before = model.cache_size().bytes
        logits = model.forward(ids[: committed - 1 + count], count)
        losses = _nats(model, logits, ids[committed : committed + count])
        yield losses, (before + model.cache_size().bytes) / 2
        committed += count
        model.maintain(ids[:committed])


def _require(fits: bool, model: LanguageModel, ids: Sequence[int]) -> None:
    if not fits:
        raise ConfigError(
            "context",
            f"is too long: a window of {len(ids)} tokens needs more places than the model's "
            f"{model.context}; only --press-positions in_cache with --max-cache-tokens goes past "
            "that, and the part that is read first must still fit",
        )


def _nats(
    model: LanguageModel,
    logits: Tensor,  # [n, vocab] float32
    ids: Sequence[int],  # [n]
) -> Tensor:  # [n] float64
    """-log probability of `ids`, each under its row."""
    if not bool(torch.isfinite(logits).all()):
        raise FloatingPointError(f"the {model.role.value} model's logits are not finite")
    wanted = torch.tensor(ids, device=logits.device)
    losses = torch.nn.functional.cross_entropy(logits.float(), wanted, reduction="none")
    return losses.double()


def summarise(losses: Sequence[WindowLoss]) -> dict[str, Any]:
    """Perplexity with its uncertainty, JSON-ready.

    The standard error is that of a ratio estimated from windows (their sum of nats over their
    number of tokens), as if windows were independent draws. Neighbours of one book are alike, so
    the true one is rather larger. None with a single window.
    """
    tokens = sum(loss.num_tokens for loss in losses)
    num_bytes = sum(loss.num_bytes for loss in losses)
    mean, error = mean_and_error([loss.nats for loss in losses], [w.num_tokens for w in losses])
    interval = (
        None
        if error is None
        else [_exp(mean - TWO_SIDED_95 * error), _exp(mean + TWO_SIDED_95 * error)]
    )
    return {
        "perplexity": _exp(mean),
        "perplexity_95": interval,
        "nats_per_token": mean,
        "standard_error": error,
        "bits_per_byte": mean * tokens / math.log(2) / num_bytes if num_bytes else None,
        "tokens": tokens,
        "bytes": num_bytes,
        "windows": len(losses),
        "mean_live_bytes": sum(w.live_bytes * w.num_tokens for w in losses) / tokens,
    }


def difference(losses: Sequence[WindowLoss], base: Sequence[WindowLoss]) -> dict[str, Any]:
    """Nats per token above another run of the same windows.

    Pairing windows takes away what makes one text harder than another, so this error is much
    smaller than that of either run.
    """
    pairs = list(zip(losses, base, strict=True))
    assert all(a.num_tokens == b.num_tokens for a, b in pairs), "runs of the same windows"
    mean, error = mean_and_error(
        [a.nats - b.nats for a, b in pairs], [a.num_tokens for a, _ in pairs]
    )
    return {"nats_per_token": mean, "standard_error": error}


def mean_and_error(sums: Sequence[float], counts: Sequence[int]) -> tuple[float, float | None]:
    """sum / count over all windows, and the standard error of that ratio."""
    total = sum(counts)
    mean = math.fsum(sums) / total
    windows = len(sums)
    if windows < 2:
        return mean, None
    squares = math.fsum((s - mean * n) ** 2 for s, n in zip(sums, counts, strict=True))
    return mean, math.sqrt(squares * windows / (windows - 1)) / total


def _exp(nats: float) -> float:
    """Perplexity, at most the largest float: a broken model must not break the report."""
    return math.exp(min(nats, 700.0))
