"""The form, its link and its presets: values to a request and back."""

from __future__ import annotations

from typing import Any

import pytest

from fastinfer.config import CompressionConfig, ConfigError, DecodeConfig
from fastinfer.events import Role
from fastinfer.ui.controls import choices_for, settled
from fastinfer.ui.form import FIELDS, form_to_config, form_values
from fastinfer.ui.labels import FIELD_LABELS
from fastinfer.ui.link import read_link, write_link
from fastinfer.ui.presets import Preset, fields_of, load_presets, row_of
from tests.form_values import values


def test_the_form_becomes_a_config() -> None:
    config = form_to_config(values(seed=" 7 ", stop="END\n\\n\\n\n", gamma=5.0, top_p=0.9))
    assert config.sampling.seed == 7
    assert config.stop == ("END", "\n\n")
    assert config.gamma.initial == 5 and config.gamma.minimum is None
    assert form_to_config(values(gamma_min="2", inner_gamma="3")).gamma.minimum == 2
    assert config.sampling.top_p == 0.9


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1), ("top_p", 2), ("gamma", 0), ("gamma", 2.5), ("max_new_tokens", 0),
        ("seed", "seven"), ("seed", "-1"), ("seed", "1.5"), ("seed", "²"), ("rounds", 0),
        ("top_k", -1), ("min_p", 1.5), ("typical_p", 0), ("repetition_penalty", 0),
        ("method", "magic"), ("gamma_max", 65), ("gamma_min", "0"), ("gamma_min", "few"),
        ("stop", "\n".join("abcdefghijklmnopq")),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        form_to_config(values(**{field: value}))
    assert caught.value.field == field


def test_an_empty_number_means_the_default() -> None:
    assert form_to_config(values(temperature=None)).sampling.temperature == 1.0


def test_without_a_press_its_fields_say_nothing() -> None:
    config = form_to_config(values(press="none", max_cache_tokens="7", press_interval="x"))
    assert config.compression is None and config.lossless


def test_the_press_group_becomes_a_compression() -> None:
    config = form_to_config(
        values(
            press="snapkv", compression_ratio=0.25, press_interval="32",
            press_on=["target", "draft"], press_positions="in_cache", press_sinks=2.0,
            shadow_every=3, draft="self",
        )
    )  # fmt: skip
    assert config.compression == CompressionConfig(
        press="snapkv", compression_ratio=0.25, interval=32, apply_to=("target", "draft"),
        positions="in_cache", num_sinks=2,
    )  # fmt: skip
    assert config.draft == "self" and config.shadow_every == 3 and not config.lossless


def test_a_budget_takes_the_place_of_the_ratio() -> None:
    config = form_to_config(values(press="knorm", max_cache_tokens="64"))
    assert config.compression is not None
    assert config.compression.max_cache_tokens == 64
    assert config.compression.compression_ratio is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("compression_ratio", 1), ("max_cache_tokens", "0"), ("press_interval", "often"),
     ("press_on", []), ("press_sinks", -1), ("shadow_every", -1), ("press", "iron")],
)  # fmt: skip
def test_a_bad_press_field_is_named(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        form_to_config(values(**({"press": "knorm"} | {field: value})))
    assert caught.value.field == field


# --- and back ---


REQUESTS = (
    {},
    {"method": "cascade", "seed": 2**63 - 1, "stop": ["a\nb", "END"], "inner_gamma": 3},
    {"press": "snapkv", "press_interval": 16, "press_on": ["draft", "target"], "shadow_every": 2},
    {"press": "streaming", "max_cache_tokens": 64, "press_positions": "in_cache"},
    {"draft": "self", "gamma_min": 2, "top_p": 0.9, "rule": "coupled"},
)


@pytest.mark.parametrize("options", REQUESTS)
def test_a_request_and_its_link_fill_the_form_that_makes_it(options: dict[str, Any]) -> None:
    config = DecodeConfig.from_mapping(options)
    shown = form_values(config.to_mapping())
    assert form_to_config(list(shown.values())) == config
    choices = choices_for(set(Role))
    read = read_link("#" + write_link("a+b & c\n海", config.to_mapping()), choices)
    assert read.pop("prompt") == "a+b & c\n海"
    assert form_to_config([read[name] for name in FIELDS]) == config


def test_a_strangers_link_can_only_fill_fields_with_what_they_can_show() -> None:
    choices = choices_for(set(Role))
    link = (
        "prompt=%3Cscript%3E&method=magic&temperature=hot&top_p=nan&gamma=1e999&gamma_max=8"
        "&press_on=draft,everything&press_on_x=1&__class__=x&stop=%24%7Bx%7D&press=none&rule"
    )
    assert read_link(link, choices) == {
        "prompt": "<script>", "gamma_max": 8, "press_on": ["draft"], "stop": "${x}",
        "press": "none",
    }  # fmt: skip
    assert read_link("", choices) == read_link("#", choices) == {}
    assert read_link("prompt=" + "a" * 200_000, choices) == {}


def test_a_link_to_what_is_not_loaded_leaves_that_field_alone() -> None:
    read = read_link("method=cascade&draft=model", choices_for({Role.TARGET}))
    assert read == {}


# --- presets ---


@pytest.mark.parametrize("preset", load_presets(), ids=lambda preset: preset.name)
def test_a_preset_is_a_good_request(preset: Preset) -> None:
    fields = fields_of(load_presets())
    row = row_of(preset, fields)
    config = form_to_config(values(**row))
    wanted = config.to_mapping()
    assert {name: wanted[name] for name in preset.options} == dict(preset.options)
    assert set(preset.options) <= set(fields)


def test_presets_show_prompt_lookup_and_a_press() -> None:
    options = [preset.options for preset in load_presets()]
    assert any(each.get("draft") == "prompt-lookup" for each in options)
    assert any(each.get("press") and each.get("shadow_every") for each in options)


def test_a_preset_without_its_model_takes_what_is_there() -> None:
    choices = choices_for({Role.TARGET})
    settled_row = settled({"method": "cascade", "draft": "model", "press_on": ["target"]}, choices)
    assert settled_row == {
        "method": "speculative", "draft": "prompt-lookup", "press_on": ["target"]
    }  # fmt: skip


def test_fields_and_config_agree() -> None:
    assert set(FIELDS) <= set(DecodeConfig().to_mapping())
    assert set(FIELDS) | {"prompt"} == set(FIELD_LABELS)
