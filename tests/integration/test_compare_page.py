"""What the Compare tab says of ten seeds under the coupled rule, on the bundled models."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fastinfer.engine import load
from fastinfer.http.line import InLine, Line
from fastinfer.shelf import CurrentEngine, EngineShelf
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.compare_tab import CompareHandler

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROMPT = "The old man looked at the sea and said nothing for a long time. At last he"
SEEDS = range(10)
NO_THIRD = ("none", "none", "draft", 0.5, "")
PARTED = re.compile(
    r"The target scores “.+” (-?[\d.]+) and “.+” (-?[\d.]+) there\. Over several ways of reading "
    r"the same text the two come within (\S+), and rounding in bfloat16 moves them by up to (\S+)\."
)


def handler(dtype: str) -> CompareHandler:
    shelf, line = EngineShelf(load("nano", dtype=dtype)), Line(4)  # type: ignore[arg-type]
    engine = InLine(CurrentEngine(shelf), line)
    return CompareHandler(engine, Backstage(shelf=shelf, line=line))


def verdict(tab: CompareHandler, seed: int, tokens: int) -> dict[str, Any]:
    """What the page says of the two texts."""
    variant = ("speculative", "none", "draft", 0.5, "")
    *_, last = tab.once(PROMPT, tokens, 0.9, str(seed), "coupled", *variant, *NO_THIRD)
    speed, texts = json.loads(last)["verdicts"]
    assert "the speed of A · Baseline" in speed["text"]
    return dict(texts)


def test_in_float32_ten_seeds_give_the_same_text() -> None:
    tab = handler("float32")
    for seed in SEEDS:
        said = verdict(tab, seed, 40)
        assert (said["tone"], said["text"]) == ("good", "A and B gave the same text"), seed


def test_in_bfloat16_the_page_says_where_and_why_they_part() -> None:
    tab = handler("bfloat16")
    for seed in SEEDS:
        said = verdict(tab, seed, 100)
        if said["tone"] == "good":
            continue
        assert re.fullmatch(
            r"A and B part at token \d+, where two tokens are as good as equal", said["text"]
        ), said
        found = PARTED.fullmatch(said["more"])
        assert found is not None, said
        first, second, gap, rounding = map(float, found.groups())
        assert gap <= rounding
        # One of these ways is the one that the scores are of; the gap has two digits.
        assert gap <= 1.06 * abs(first - second) + 1e-4
