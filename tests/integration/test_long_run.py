"""The script behind the long run's figures, on a tiny model that it takes past its context."""

from __future__ import annotations

import argparse
import math

import pytest
from pressed import own_engine, random_tokens

from scripts import long_run

pytestmark = pytest.mark.integration

CONTEXT = 1600
TOKENS = 2000


def test_every_stretch_has_its_figures() -> None:
    engine = own_engine("neox", context=CONTEXT)
    texts = {"a.txt": random_tokens(64 + TOKENS), "b.txt": random_tokens(64 + TOKENS, seed=6)}
    args = argparse.Namespace(
        method="autoregressive", tokens=TOKENS, prompt_tokens=64, budget=96, interval=16,
        temperature=1.0,
    )  # fmt: skip
    found = long_run.measure(engine, texts, args)
    assert found["tokens"] == TOKENS > CONTEXT
    assert found["prompt"] == {"text": "a.txt", "tokens": 64}
    assert found["budget_reached_after"] == 96 + 16 - 64 + 1
    assert len(found["tpot_ms_by_stretch"]) == len(found["held"]) == 4
    assert max(held["cache_tokens"] for held in found["held"]) <= 96 + 16
    for judged in (found["perplexity"], *found["real_text"].values()):
        assert len(judged["same_press"]) == len(judged["whole_cache"]) == 4
        assert all(math.isfinite(value) for values in judged.values() for value in values)
    own = found["perplexity"]["same_press"]
    others = [value for judged in found["real_text"].values() for value in judged["same_press"]]
    assert max(own) < min(others), "a model's own text is likelier to it than noise"
