"""KV presses: pure functions that say which entries of a cache are worth keeping."""

from __future__ import annotations

from collections.abc import Mapping

from fastinfer.presses.base import ALL_QUERIES, LayerView, Press, keep_best
from fastinfer.presses.expected_attention import ExpectedAttention
from fastinfer.presses.hybrid import Hybrid
from fastinfer.presses.keydiff import KeyDiff
from fastinfer.presses.knorm import Knorm
from fastinfer.presses.observed import Observed
from fastinfer.presses.pyramid import Pyramid
from fastinfer.presses.random import Random
from fastinfer.presses.snapkv import SnapKV
from fastinfer.presses.streaming import Streaming
from fastinfer.presses.tova import Tova

__all__ = ["ALL_QUERIES", "PRESSES", "LayerView", "Press", "keep_best"]

# Every press by its name, with its usual parameters. `summary` is its line in help texts;
# `num_queries` is 0 where keys and values are all that it needs.
PRESSES: Mapping[str, Press] = {
    press.name: press
    for press in (
        Streaming(), Knorm(), SnapKV(), Tova(), Observed(), ExpectedAttention(), KeyDiff(),
        Hybrid(), Pyramid(), Random(),
    )
}  # fmt: skip
