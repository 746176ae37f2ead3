"""Configs: every bad value is refused by name, every good one comes back unchanged."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastinfer.config import (
    DEFAULT_FLOORS,
    FLAT_FIELDS,
    GAMMA_POLICIES,
    MAX_GAMMA,
    MAX_SEED,
    MAX_STOPS,
    METHODS,
    POSITIONS,
    PRESS_NAMES,
    PRESS_ROLES,
    RULES,
    ConfigError,
    DecodeConfig,
    GammaConfig,
    SamplingConfig,
)


def refused(**values: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        DecodeConfig.from_mapping(values)
    return caught.value


BAD = [
    ("temperature", [-1, -0.001, 100.1, 10**400, float("nan"), float("inf"), "1", True, [1]]),
    ("top_k", [-1, 1.5, "3", True]),
    ("top_p", [0, -0.1, 2, 1.0001, float("nan"), "all", False]),
    ("min_p", [-0.1, 1.1, "0"]),
    ("typical_p", [0, 1.1]),
    ("repetition_penalty", [0, 0.009, 1e-45, -1, 10.5, float("inf")]),
    ("presence_penalty", [-2.1, 2.1]),
    ("frequency_penalty", [-2.1, 2.1]),
    ("seed", [-1, 2**63, 1.0, 0.0, "1", "", True, False]),
    ("max_new_tokens", [0, -5, 1.5, "10", True]),
    ("min_new_tokens", [-1, 129]),
    ("rounds", [0, MAX_GAMMA + 1]),
    ("gamma", [0, -1, MAX_GAMMA + 1, 17, 2.0, "4", True]),
    ("gamma_min", [0, MAX_GAMMA + 1]),
    ("gamma_max", [0, MAX_GAMMA + 1]),
    ("inner_gamma", [0, MAX_GAMMA + 1, "4"]),
    ("gamma_policy", ["", "AIMD", 3]),
    ("method", ["", "Speculative", 0, "greedy"]),
    ("rule", ["", "openai", 1]),
    ("draft", ["", "ngram"]),
    ("intermediate", ["", "small"]),
    ("press", ["", "Knorm", 1, ["knorm"]]),
    ("shadow_every", [-1, 1.5, "2"]),
    ("logprobs", [-1, 21, 1.5, "3", True]),
    ("ignore_eos", ["no", 1]),
    ("use_cache", ["no", 0]),
    ("stop", ["", ["a", ""], [1], 3, {"a": 1}, ["x"] * (MAX_STOPS + 1)]),
]


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in BAD for v in values], ids=str)
def test_a_bad_value_is_refused_by_its_own_name(field: str, value: object) -> None:
    error = refused(**{field: value})
    assert error.field == field
    assert str(error) == f"{error.field}: {error.message}"
    assert "\n" not in str(error)


BAD_WITH_A_PRESS = [
    ("compression_ratio", [-0.1, 1, 1.0, float("nan"), "half", True]),
    ("max_cache_tokens", [0, 20, 1.5, "512"]),  # 4 sinks, a block of 16 and the verifier's own
    ("press_interval", [0, -1, 2.5, "8"]),
    ("press_on", ["", "targets", [], ["target", "me"], 3, {"a": 1}]),
    ("press_positions", ["", "cache", 0]),
    ("press_sinks", [-1, 1.0, "4"]),
]


@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f, values in BAD_WITH_A_PRESS for v in values], ids=str
)
def test_a_bad_value_beside_a_press_is_refused_by_its_own_name(field: str, value: object) -> None:
    error = refused(press="knorm", **{field: value})
    assert error.field == field
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("compression_ratio", {"compression_ratio": 0.5}),  # without a press
        ("press_sinks", {"press_sinks": 4}),
        ("max_cache_tokens", {"press": "knorm", "max_cache_tokens": 99, "compression_ratio": 0.5}),
        ("press_positions", {"press": "pyramid", "press_positions": "in_cache"}),
        ("press", {"press": "knorm", "use_cache": False}),
        ("draft", {"draft": "self", "use_cache": False}),
    ],
)
def test_options_of_a_press_that_do_not_go_together(field: str, values: dict[str, Any]) -> None:
    assert refused(**values).field == field


@pytest.mark.parametrize(
    ("values", "lossless", "words"),
    [
        ({}, True, "the text follows the target's own law"),
        ({"press": "knorm"}, False, "knorm drops entries of the target's own cache"),
        ({"press": "knorm", "press_on": "draft,target"}, False, "knorm drops"),
        ({"press": "knorm", "press_on": ["draft"]}, True, "the target keeps its whole cache"),
        ({"press": "knorm", "compression_ratio": 0}, True, "own law"),
        ({"press": "knorm", "max_cache_tokens": 99}, False, "knorm drops"),
        ({"draft": "self"}, True, "own law"),
    ],
)
def test_what_is_lossless(values: dict[str, Any], lossless: bool, words: str) -> None:
    config = DecodeConfig.from_mapping(values)
    assert config.lossless is lossless
    assert words in config.lossless_reason


def test_self_is_compressed_by_default_and_as_the_user_says() -> None:
    by_default = DecodeConfig.from_mapping({"draft": "self"}).compression_of("draft")
    assert by_default is not None
    assert (by_default.press, by_default.compression_ratio) == ("streaming", 0.5)
    chosen = DecodeConfig.from_mapping({"draft": "self", "press": "tova", "press_on": "draft"})
    assert chosen.compression_of("draft") == chosen.compression
    assert chosen.compression_of("target") is None


@pytest.mark.parametrize("policy", GAMMA_POLICIES)
def test_every_policy_meets_the_same_compressions(policy: str) -> None:
    assert DecodeConfig.from_mapping({"gamma_policy": policy}).num_recent == 17


def test_an_unknown_option_is_named_and_the_known_ones_listed() -> None:
    error = refused(temprature=1.0)
    assert error.field == "temprature"
    assert "temperature" in error.message


def test_none_means_not_given() -> None:
    assert DecodeConfig.from_mapping(dict.fromkeys(FLAT_FIELDS)) == DecodeConfig()
    assert DecodeConfig.from_mapping({}) == DecodeConfig()


def test_google_and_deepmind_name_the_residual_rule() -> None:
    for name in ("google", "deepmind"):
        assert DecodeConfig.from_mapping({"rule": name}).rule == "residual"


def test_one_stop_text_or_a_list_of_them() -> None:
    assert DecodeConfig.from_mapping({"stop": "END"}).stop == ("END",)
    assert DecodeConfig.from_mapping({"stop": ["a", "b"]}).stop == ("a", "b")


@pytest.mark.parametrize("policy", GAMMA_POLICIES)
def test_the_policy_s_floor_gives_way_to_a_smaller_start(policy: Any) -> None:
    assert GammaConfig(policy=policy, initial=8).floor == DEFAULT_FLOORS[policy]
    assert GammaConfig(policy=policy, initial=1).floor == min(1, DEFAULT_FLOORS[policy])
    assert GammaConfig(policy=policy, initial=8, minimum=3).floor == 3


def test_gamma_must_start_between_its_bounds() -> None:
    assert refused(gamma=2, gamma_min=3).field == "gamma"
    assert refused(gamma=9, gamma_max=8).field == "gamma"
    # A constant gamma has no bounds to lie between.
    assert DecodeConfig.from_mapping({"gamma": 40, "gamma_policy": "constant"}).gamma.initial == 40


def test_the_inner_gamma_follows_the_outer_one_unless_it_is_given() -> None:
    both = DecodeConfig.from_mapping({"gamma": 6, "gamma_policy": "constant"})
    assert both.inner_gamma == both.gamma
    apart = DecodeConfig.from_mapping({"gamma": 6, "gamma_max": 9, "inner_gamma": 4})
    assert (apart.inner_gamma.initial, apart.inner_gamma.maximum) == (4, 9)


@pytest.mark.parametrize("config", [SamplingConfig(), GammaConfig(), DecodeConfig()], ids=str)
def test_configs_can_t_be_changed(config: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(config)[0].name, 1)


GOOD = st.fixed_dictionaries(
    {},
    optional={
        "method": st.sampled_from(METHODS),
        "rule": st.sampled_from(RULES),
        "gamma_policy": st.sampled_from(GAMMA_POLICIES),
        "gamma": st.integers(4, 16),
        "inner_gamma": st.integers(4, 16),
        "gamma_min": st.integers(1, 4),
        "gamma_max": st.integers(16, MAX_GAMMA),
        "rounds": st.integers(1, MAX_GAMMA),
        "max_new_tokens": st.integers(10, 10_000),
        "min_new_tokens": st.integers(0, 10),
        "stop": st.lists(st.text(min_size=1), max_size=MAX_STOPS),
        "ignore_eos": st.booleans(),
        "temperature": st.floats(0, 100),
        "top_k": st.integers(0, 100_000),
        "top_p": st.floats(0, 1, exclude_min=True),
        "min_p": st.floats(0, 1),
        "typical_p": st.floats(0, 1, exclude_min=True),
        "repetition_penalty": st.floats(0.01, 10),
        "presence_penalty": st.floats(-2, 2),
        "frequency_penalty": st.floats(-2, 2),
        "seed": st.integers(0, MAX_SEED),
    },
)


@given(GOOD)
def test_to_mapping_is_the_inverse_of_from_mapping(values: dict[str, Any]) -> None:
    config = DecodeConfig.from_mapping(values)
    flat = config.to_mapping()
    assert flat.items() >= values.items()
    assert DecodeConfig.from_mapping(json.loads(json.dumps(flat))) == config


PRESSED = st.fixed_dictionaries(
    {
        "press": st.sampled_from([name for name in PRESS_NAMES if name != "pyramid"]),
        "press_on": st.lists(st.sampled_from(PRESS_ROLES), min_size=1, max_size=3),
    },
    optional={
        "press_interval": st.integers(1, 10_000),
        "press_positions": st.sampled_from(POSITIONS),
        "press_sinks": st.integers(0, 10),
        "shadow_every": st.integers(0, 100),
    },
)
SIZES = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"compression_ratio": st.floats(0, 1, exclude_max=True)}),
    st.fixed_dictionaries({"max_cache_tokens": st.integers(27, 10**6)}),
)


@given(PRESSED, SIZES)
def test_to_mapping_carries_a_press(values: dict[str, Any], size: dict[str, Any]) -> None:
    config = DecodeConfig.from_mapping({**values, **size})
    flat = config.to_mapping()
    assert flat.items() >= {**values, **size}.items()
    assert DecodeConfig.from_mapping(json.loads(json.dumps(flat))) == config
