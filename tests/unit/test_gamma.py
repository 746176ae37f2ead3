"""Gamma policies move as their formulas say, and keep nothing between requests."""

from __future__ import annotations

import pytest

from fastinfer.config import ConfigError, GammaConfig
from fastinfer.decoding.gamma import controller_for


def walk(config: GammaConfig, outcomes: list[tuple[int, int] | bool]) -> list[int]:
    """Gamma after each round; True is full acceptance of a full block, False a rejection at once."""
    controller = controller_for(config)
    seen = []
    for outcome in outcomes:
        if isinstance(outcome, bool):
            outcome = (controller.gamma, controller.gamma if outcome else 0)
        controller.update(*outcome)
        seen.append(controller.gamma)
    return seen


def test_constant_stays() -> None:
    assert walk(GammaConfig(policy="constant", initial=5), [True, False, True]) == [5, 5, 5]


def test_aimd_adds_one_and_halves_down_to_four() -> None:
    config = GammaConfig(policy="aimd", initial=4)
    assert walk(config, [True] * 6 + [False] * 2) == [5, 6, 7, 8, 9, 10, 5, 4]


def test_aimd_has_a_ceiling() -> None:
    config = GammaConfig(policy="aimd", initial=4, maximum=6)
    assert walk(config, [True] * 4) == [5, 6, 6, 6]


def test_aimd_floor_is_a_setting() -> None:
    config = GammaConfig(policy="aimd", initial=8, minimum=1)
    assert walk(config, [False] * 4) == [4, 2, 1, 1]


def test_a_low_start_lowers_the_default_floor() -> None:
    assert walk(GammaConfig(policy="aimd", initial=2), [False, True, False]) == [2, 3, 2]


def test_additive_goes_by_one_down_to_two() -> None:
    config = GammaConfig(policy="additive", initial=4)
    assert walk(config, [True, False, False, False, False]) == [5, 4, 3, 2, 2]


@pytest.mark.parametrize("policy", ["aimd", "additive"])
def test_a_block_cut_short_by_the_budget_does_not_raise_gamma(policy: str) -> None:
    config = GammaConfig(policy=policy, initial=6)  # type: ignore[arg-type]
    assert walk(config, [(2, 2)]) == [6]


def test_state_is_not_shared_between_requests() -> None:
    # transformers' heuristic schedule leaked into the shared generation config.
    config = GammaConfig(policy="aimd", initial=4)
    walk(config, [True] * 5)
    assert controller_for(config).gamma == 4


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"initial": 0}, "gamma"),
        ({"initial": 20, "maximum": 10}, "gamma"),
        ({"initial": 4, "minimum": 5}, "gamma"),
        ({"policy": "magic"}, "gamma_policy"),
        ({"maximum": 0}, "gamma_max"),
        ({"minimum": 0}, "gamma_min"),
    ],
)
def test_bad_values_name_their_field(options: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        GammaConfig(**options)  # type: ignore[arg-type]
    assert caught.value.field == field
