"""What is remembered is what the model says, computed once."""

from __future__ import annotations

import pytest
import torch
from toys import probs_of

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.evaluation import remembered
from fastinfer.evaluation.remembered import Remembered, RememberedLaw
from fastinfer.events import Role

pytestmark = pytest.mark.integration

PROMPT = "The old man looked at the sea and"
CONFIG = DecodeConfig.from_mapping({"temperature": 0.7, "top_k": 20})


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32")


def test_a_continuation_costs_one_pass_and_is_the_sessions_own(engine: Engine) -> None:
    ids = engine.encode(PROMPT)
    model = Remembered(engine.session(Role.TARGET, CONFIG), ids)
    law = RememberedLaw(engine.law(CONFIG, len(ids)))
    for tokens, count in ((ids, 1), ([*ids, 5], 2), ([*ids, 9, 5], 3), ([*ids, 5], 2)):
        logits = model.forward(tokens, count)
        fresh = engine.session(Role.TARGET, CONFIG).forward(tokens, count)
        torch.testing.assert_close(logits, fresh, rtol=1e-4, atol=1e-4)
        laws = law(logits, tokens)
        expected = engine.law(CONFIG, len(ids))(fresh, tokens)
        torch.testing.assert_close(probs_of(laws), probs_of(expected))
        assert law(logits, tokens) is laws and model.forward(tokens, count) is logits
    assert model.num_passes == 3


def test_the_oldest_goes_where_there_are_too_many(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "MEMORY_BYTES", 0)  # so 64 rows are kept
    ids = engine.encode(PROMPT)
    model = Remembered(engine.session(Role.TARGET, CONFIG), ids)
    for token in range(65):
        model.forward([*ids, token], 1)
    model.forward([*ids, 64], 1)
    assert model.num_passes == 65
    model.forward([*ids, 0], 1)
    assert model.num_passes == 66
