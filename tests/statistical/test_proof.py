"""The page's own proof passes where text is lossless, and fails where it is not.

On the bundled models, seeds fixed, so that a result never flickers. A right rule would fail once in
10,000 sets of seeds; a wrong one must lie far beyond that.
"""

from __future__ import annotations

from typing import Any

import pytest

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.evaluation.prompts import load_prompts
from fastinfer.evaluation.proof import Proof, prove

pytestmark = [pytest.mark.statistical, pytest.mark.slow]

DRAWS = 3000
P_WRONG = 1e-9
PROMPT = (
    "The old man looked at the sea and said nothing for a long time. The boats had not come home, "
    "and the light was going. At last he turned to the boy who stood beside him, and said"
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32")


def last(engine: Engine, wrong: bool = False, **options: Any) -> Proof:
    config = DecodeConfig.from_mapping(
        {"method": "speculative", "temperature": 0.7, "seed": 1, **options}
    )
    *_, proof = prove(engine, PROMPT, config, draws=DRAWS, wrong=wrong)
    assert proof.fit.num_draws == int(proof.counts.sum()) == DRAWS
    return proof


@pytest.mark.parametrize("method", ["speculative", "cascade"])
@pytest.mark.parametrize("rule", ["residual", "coupled"])
def test_passes_for_both_rules_with_two_and_three_tiers(
    engine: Engine, method: str, rule: str
) -> None:
    proof = last(engine, method=method, rule=rule)
    assert proof.fit.passed
    assert proof.fit.total_variation < proof.fit.floor_high
    # Some drafts stood and some fell, so both halves of the rule were at work.
    assert 0.1 * DRAWS < proof.num_accepted < 0.9 * DRAWS and proof.num_tested == DRAWS


@pytest.mark.parametrize("method", ["speculative", "cascade"])
def test_passes_with_a_press_on_the_draft(engine: Engine, method: str) -> None:
    proof = last(engine, method=method, press="streaming", press_on="draft", gamma_max=4)
    assert proof.fit.passed
    assert [done.role.value for done in proof.compressed] == ["draft"]


@pytest.mark.parametrize("method", ["speculative", "cascade"])
def test_fails_for_the_wrong_rule(engine: Engine, method: str) -> None:
    proof = last(engine, method=method, wrong=True)
    assert proof.fit.p_value < P_WRONG and not proof.fit.passed
    assert proof.fit.total_variation > proof.fit.floor_high


def test_fails_for_a_press_on_the_target(engine: Engine) -> None:
    proof = last(engine, press="streaming", press_on="target", compression_ratio=0.7, gamma_max=4)
    assert proof.fit.p_value < P_WRONG
    assert [done.role.value for done in proof.compressed] == ["target"]


def test_passes_for_prompt_lookup_where_the_prompt_repeats_itself(engine: Engine) -> None:
    verse = next(p.text for p in load_prompts("examples") if p.name == "Copy a verse")
    config = DecodeConfig.from_mapping({"draft": "prompt-lookup", "temperature": 1.2, "seed": 1})
    *_, proof = prove(engine, verse, config, draws=DRAWS)
    assert proof.fit.passed and proof.num_tested == DRAWS


def test_a_greedy_law_is_met_exactly(engine: Engine) -> None:
    proof = last(engine, temperature=0)
    assert proof.fit.passed and proof.fit.total_variation == 0.0


def test_what_can_not_be_proven_is_refused(engine: Engine) -> None:
    for prompt, options, field in (
        (PROMPT, {"method": "autoregressive"}, "method"),
        ("", {}, "prompt"),
    ):
        with pytest.raises(ConfigError) as caught:
            next(prove(engine, prompt, DecodeConfig.from_mapping(options)))
        assert caught.value.field == field
    with pytest.raises(ConfigError, match="draws"):
        next(prove(engine, PROMPT, DecodeConfig(), draws=0))
