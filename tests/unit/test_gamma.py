"""Gamma policies move as their formulas say, and keep nothing between requests."""

from __future__ import annotations

import random

import pytest

from fastinfer.config import ConfigError, GammaConfig
from fastinfer.decoding.cost_aware import WORTH, CostAwareGamma, VerifyTimes
from fastinfer.decoding.gamma import controller_for
from fastinfer.decoding.protocols import Outcome


def round_of(
    drafted: int,
    accepted: int,
    draft_ms: float = 1.0,
    verify_ms: float = 1.0,
    confidence: float = 0.9,
) -> Outcome:
    return Outcome(
        num_drafted=drafted, num_accepted=accepted, confidences=(confidence,) * drafted,
        draft_ms=draft_ms, verify_ms=verify_ms,
    )  # fmt: skip


def walk(config: GammaConfig, outcomes: list[tuple[int, int] | bool]) -> list[int]:
    """Gamma after each round; True is a full block accepted, False one refused at once."""
    controller = controller_for(config)
    seen = []
    for outcome in outcomes:
        if isinstance(outcome, bool):
            outcome = (controller.gamma, controller.gamma if outcome else 0)
        controller.update(round_of(*outcome))
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


def test_confidence_stops_after_a_doubtful_token() -> None:
    controller = controller_for(GammaConfig(policy="confidence", threshold=0.5, maximum=9))
    assert controller.gamma == 9
    assert controller.keep_drafting([])
    assert controller.keep_drafting([0.1, 0.5])
    assert not controller.keep_drafting([0.9, 0.49])


# Cost-aware, on a simulated machine: costs are set, acceptance is drawn -------------------------


def simulate(
    acceptance: float,
    draft_ms: float,
    extra_ms: float = 0.0,
    rounds: int = 400,
    seed: int = 0,
    policy: str = "cost_aware",
    maximum: int = 16,
    draft_cost: float = 0.0,
) -> tuple[float, CostAwareGamma]:
    """Speed against plain steps of 1 ms, and the controller in its last state."""
    rng = random.Random(seed)
    config = GammaConfig(policy=policy, maximum=maximum)  # type: ignore[arg-type]
    controller = controller_for(config, draft_cost)
    tokens = time = 0.0
    for _ in range(rounds):
        drafted = 0
        while drafted < controller.gamma and controller.keep_drafting((0.8,) * drafted):
            drafted += 1
        accepted = 0
        while accepted < drafted and rng.random() < acceptance:
            accepted += 1
        outcome = round_of(drafted, accepted, drafted * draft_ms, 1.0 + extra_ms * drafted, 0.8)
        controller.update(outcome)
        tokens += accepted + 1
        time += outcome.draft_ms + outcome.verify_ms
    return tokens / time, controller  # type: ignore[return-value]


def best_fixed(acceptance: float, draft_ms: float, extra_ms: float = 0.0) -> float:
    """max over gamma of (1 + a + ... + a^gamma) / (gamma c + v(gamma)), arXiv:2211.17192."""
    return max(
        sum(acceptance**k for k in range(g + 1)) / (g * draft_ms + 1 + extra_ms * g)
        for g in range(17)
    )


@pytest.mark.parametrize(
    ("acceptance", "draft_ms", "extra_ms"),
    [(0.9, 0.05, 0.0), (0.8, 0.1, 0.0), (0.7, 0.11, 0.05), (0.6, 0.2, 0.0), (0.5, 0.02, 0.1)],
)
def test_cost_aware_comes_near_the_best_fixed_gamma(
    acceptance: float, draft_ms: float, extra_ms: float
) -> None:
    best = best_fixed(acceptance, draft_ms, extra_ms)
    reached = sum(simulate(acceptance, draft_ms, extra_ms, seed=s)[0] for s in range(5)) / 5
    assert reached > 0.93 * best


@pytest.mark.parametrize(("acceptance", "draft_ms"), [(0.4, 0.6), (0.2, 0.3), (0.0, 0.05)])
def test_cost_aware_gives_up_where_drafting_cannot_pay(acceptance: float, draft_ms: float) -> None:
    reached, controller = simulate(acceptance, draft_ms, rounds=800)
    assert reached > 0.97
    assert controller.gamma <= 1


@pytest.mark.parametrize(
    ("draft_cost", "draft_ms", "most"),
    [(0.0, 0.95, 1.01), (0.0, 1.1, 1.01), (0.0, 1.4, 1.012), (1.0, 0.95, 1.003), (1.0, 1.4, 1.01)],
)
@pytest.mark.parametrize("cold", [1.0, 3.0])
def test_a_draft_as_dear_as_the_target_costs_next_to_nothing(
    cold: float, draft_cost: float, draft_ms: float, most: float
) -> None:
    """The target drafting for itself over a short cache, in a run of 128 tokens.

    What it has not seen, it must read before it drafts: a pass, and more for many tokens.
    """
    controller = CostAwareGamma(GammaConfig(policy="cost_aware"), draft_cost)
    tokens = time = unseen = 0.0
    while tokens < 128:
        drafted = 0
        while drafted < controller.gamma and controller.keep_drafting((1.0,) * drafted):
            drafted += 1
        accepted = min(drafted, 3)
        slow = cold if tokens == 0 else 1.0
        draft = drafted * draft_ms + (0.03 * unseen if drafted else 0.0)
        verify = 1.0 + 0.03 * drafted
        unseen = 0.0 if drafted else unseen + 1.0
        controller.update(round_of(drafted, accepted, draft, slow * verify, 1.0))
        tokens += accepted + 1
        time += draft + verify
    assert time / tokens < most


def test_one_lucky_time_does_not_speak_for_a_draft_that_is_expected_to_be_dear() -> None:
    def after(first_ms: float, draft_cost: float) -> int:
        controller = CostAwareGamma(GammaConfig(policy="cost_aware"), draft_cost)
        controller.update(round_of(0, 0))
        controller.update(round_of(1, 1, first_ms, 1.0, 0.9))
        controller.update(round_of(1, 1, 1.05, 1.0, 0.9))
        return controller.gamma

    assert after(0.85, draft_cost=0.0) > 0
    assert after(0.85, draft_cost=1.0) == 0


def test_slow_plain_steps_reopen_no_drafting_that_was_found_dear() -> None:
    """As when a cache grows and is copied. The draft would have to read all that it missed."""
    controller = CostAwareGamma(GammaConfig(policy="cost_aware"), 1.0)
    for _ in range(3):
        controller.update(round_of(0, 0))
    for _ in range(2):
        assert controller.gamma == 1
        controller.update(round_of(1, 1, 1.0, 1.03, 0.9))
    for ms in (1.0, 1.0, 3.0, 1.0, 1.0):
        controller.update(round_of(0, 0, verify_ms=ms))
        assert controller.gamma == 0


@pytest.mark.parametrize("draft_ms", [0.1, 0.3, 0.5])
def test_a_draft_that_is_cheaper_than_expected_is_used(draft_ms: float) -> None:
    reached = sum(simulate(0.9, draft_ms, seed=s, draft_cost=1.0)[0] for s in range(5)) / 5
    assert reached > 0.9 * best_fixed(0.9, draft_ms)


@pytest.mark.parametrize("cold", [2.0, 4.0, 10.0])
def test_a_cold_first_draft_gets_another_chance_at_once(cold: float) -> None:
    controller = CostAwareGamma(GammaConfig(policy="cost_aware"))
    controller.update(round_of(0, 0))
    controller.update(round_of(2, 2, 2 * 0.3 * cold, cold, 0.9))
    assert controller.gamma >= 1  # before it has missed anything
    controller.update(round_of(1, 1, 0.3, 1.0, 0.9))
    assert controller.gamma == controller.maximum


def test_what_drafting_has_to_beat_is_timed_again() -> None:
    """The plain steps that were timed came in a slow moment, and drafting only seems to gain."""
    controller = CostAwareGamma(GammaConfig(policy="cost_aware"))
    for _ in range(2):
        controller.update(round_of(0, 0, verify_ms=1.4))
    tokens = time = 0.0
    while tokens < 400:
        drafted = 0
        while drafted < controller.gamma and controller.keep_drafting((0.9,) * drafted):
            drafted += 1
        controller.update(round_of(drafted, drafted, 0.97 * drafted, 1.0 + 0.1 * drafted))
        tokens += drafted + 1
        time += 0.97 * drafted + 1.0 + 0.1 * drafted
    assert time / tokens < 1.02


def test_a_draft_that_gains_much_is_not_interrupted() -> None:
    reached, controller = simulate(0.8, 0.1, rounds=200)
    assert reached > 1.9 and controller._plain_rounds == 0 and controller._since_plain > 190


def test_it_looks_no_further_than_tokens_that_can_pay() -> None:
    """As if every block size had been tried."""
    rng = random.Random(1)
    answers = set()
    for _ in range(500):
        policy = CostAwareGamma(GammaConfig(policy="cost_aware"))
        draft_ms, extra_ms = rng.uniform(0.0, 0.8), rng.uniform(0.0, 0.4)
        jump_ms = rng.choice((0.0, 1.0))
        policy.update(round_of(0, 0))
        for _ in range(rng.randint(1, 6)):
            drafted = rng.randint(1, 8)
            accepted = rng.randint(0, drafted)
            verify_ms = 1.0 + jump_ms + extra_ms * drafted
            policy.update(round_of(drafted, accepted, draft_ms * drafted, verify_ms))
        a, plain = policy.acceptance.mean(), policy.verify.at(0)
        tried = any(
            plain * sum(a**k for k in range(gamma + 1))
            > WORTH * (gamma * policy._draft_ms() + policy.verify.at(gamma))
            for gamma in range(1, policy.maximum + 1)
        )
        answers.add(tried)
        assert policy._pays() == (tried or policy._tokens * plain > WORTH * policy._ms)
    assert answers == {True, False}


def test_cost_aware_beats_aimd_where_drafts_are_dear() -> None:
    # AIMD can't go below its floor of four: 0.63x at c = .4, acceptance .4.
    assert simulate(0.4, 0.4)[0] > simulate(0.4, 0.4, policy="aimd")[0] + 0.2


def test_cost_aware_comes_back_when_the_text_turns_easy() -> None:
    _, controller = simulate(0.0, 0.1)
    assert controller.gamma <= 1
    for _ in range(300):
        drafted = 0
        while drafted < controller.gamma and controller.keep_drafting((0.8,) * drafted):
            drafted += 1
        controller.update(round_of(drafted, drafted, 0.1 * drafted, 1.0, 0.8))
    assert controller.gamma == controller.maximum


def test_cost_aware_drafts_on_for_confident_tokens_only() -> None:
    controller = CostAwareGamma(GammaConfig(policy="cost_aware"))
    controller.update(round_of(0, 0))
    for _ in range(60):
        controller.update(round_of(4, 4, 1.0, 1.0, 0.95))
        controller.update(round_of(1, 0, 0.25, 1.0, 0.15))
    assert controller.keep_drafting([0.95])
    assert not controller.keep_drafting([0.15])


def test_one_slow_round_does_not_move_the_costs_far() -> None:
    times = VerifyTimes()
    for _ in range(10):
        times.add(0, 1.0)
    times.add(0, 1000.0)
    assert times.at(0) < 1.5


def test_a_block_is_never_cheaper_than_a_plain_step() -> None:
    times = VerifyTimes()
    times.add(0, 1.0)
    assert times.at(5) == 1.0
    times.add(4, 1.1)
    times.add(8, 0.9)
    assert times.at(0) == times.at(4) == times.at(12) == pytest.approx(1.0, abs=0.01)
    assert times.slope() == 0.0


def test_a_cold_first_step_does_not_make_drafting_look_cheap() -> None:
    times = VerifyTimes()
    times.add(0, 5.0)
    for size in (2, 4, 4):
        times.add(size, 1.0)
    assert times.at(0) == pytest.approx(1.0)


def test_verification_times_lie_on_a_line_through_noise() -> None:
    """Each further token costs 0.05 here, which no single measurement shows."""
    rng = random.Random(1)
    times = VerifyTimes()
    times.add(0, 1.0)
    slopes = []
    for _ in range(400):
        size = rng.randint(1, 6)
        slow = 5.0 if rng.random() < 0.03 else 1.0  # another program
        times.add(size, (1.1 + 0.05 * size) * rng.uniform(0.9, 1.1) * slow)
        slopes.append(times.slope())
    assert sum(slopes) / len(slopes) == pytest.approx(0.05, abs=0.03)
    assert times.at(6) - times.at(5) < 0.15
    assert times.at(3) == pytest.approx(1.25, abs=0.15)
