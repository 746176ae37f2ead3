"""Names of a benchmark's methods with a gamma policy or a press in them."""

from __future__ import annotations

import pytest

from fastinfer.bench_options import BenchChoice, bench_choice
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.evaluation.fused import names_of_methods, options_for, own_options
from fastinfer.options import build_parser


def config(name: str, **options: object) -> DecodeConfig:
    return DecodeConfig.from_mapping(options_for(name, options))


def test_a_name_says_method_press_size_and_role() -> None:
    made = config("speculative+snapkv@0.75:draft")
    assert made.method == "speculative"
    assert made.compression is not None
    assert made.compression.press == "snapkv"
    assert made.compression.compression_ratio == 0.75
    assert made.compression.apply_to == ("draft",)
    assert made.lossless


def test_a_press_is_the_targets_unless_told_otherwise() -> None:
    assert not config("autoregressive+streaming@0.5").lossless
    both = config("speculative+streaming@0.5:draft/target").compression
    assert both is not None and both.apply_to == ("draft", "target")


def test_a_size_in_tokens() -> None:
    made = config("autoregressive+knorm@512tokens").compression
    assert made is not None and made.max_cache_tokens == 512
    assert made.compression_ratio is None


def test_a_policy_of_its_own_beats_the_common_one() -> None:
    assert config("speculative+aimd", gamma_policy="constant").gamma.policy == "aimd"
    assert config("cascade+additive").method == "cascade"
    assert config("speculative", gamma_policy="constant").gamma.policy == "constant"


def test_options_of_presses_reach_only_methods_with_one() -> None:
    common = {"press_interval": 64, "press_positions": "in_cache", "temperature": 0.5}
    assert options_for("speculative", common) == {"method": "speculative", "temperature": 0.5}
    made = config("speculative+tova@0.5", **common).compression
    assert made is not None and made.interval == 64 and made.positions == "in_cache"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fast", "must be among autoregressive"),
        ("fast+aimd", "must be among autoregressive"),
        ("speculative+snapkv", "neither a gamma policy"),
        ("speculative+nopress@0.5", "neither a gamma policy"),
        ("speculative+", "neither a gamma policy"),
        ("speculative+aimd+additive", "twice"),
        ("speculative+tova@0.5+knorm@0.5", "twice"),
    ],
)
def test_what_is_no_such_name_is_refused(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        own_options(name)
    assert caught.value.field == "methods"


def test_names_are_read_with_commas_between_and_once() -> None:
    names = "autoregressive, speculative+aimd,speculative+tova@0.5:draft/target"
    assert names_of_methods(names) == tuple(part.strip() for part in names.split(","))
    with pytest.raises(ConfigError, match="twice"):
        names_of_methods("self,self")


def choice(*arguments: str) -> BenchChoice:
    return bench_choice(build_parser().parse_args(["bench", *arguments]))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("speculative+streaming@1.5", "compression_ratio"),
        ("speculative+streaming@half", "compression_ratio"),
        ("speculative+streaming@0.5:everyone", "press_on"),
        ("speculative+streaming@3tokens", "max_cache_tokens"),
        ("autoregressive-uncached+streaming@0.5", "press"),
    ],
)
def test_values_are_refused_before_a_model_is_loaded(name: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        choice("--methods", name)
    assert caught.value.field == field


def test_the_command_gives_presses_their_interval() -> None:
    assert choice("--methods", "speculative").options == {}
    fused = choice("--methods", "autoregressive+tova@0.5", "--press-interval", "0")
    assert fused.options["press_interval"] is None
    assert choice("--methods", "autoregressive+tova@0.5").options["press_interval"] == 64
