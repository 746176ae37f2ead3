"""Which models fit together, what ends a text, and how a model's authors sample."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import byte_tokenizer, tiny_models
from tokenizers import Regex, normalizers, pre_tokenizers

from fastinfer.events import Role
from fastinfer.models.pairing import (
    check_decoders,
    check_same_tokenizer,
    end_ids,
    read_generation_config,
    sampling_defaults,
)
from fastinfer.models.sources import ModelLoadError


def test_the_same_tokenizer_fits() -> None:
    check_same_tokenizer(Role.DRAFT, byte_tokenizer(("ab",)), byte_tokenizer(("ab",)))


@pytest.mark.parametrize(
    ("draft", "target", "words"),
    [
        (("wave",), (), "id 257 is 'wave' there and None in the target"),
        ((), ("wave",), "id 257 is None there and 'wave' in the target"),
        (("a1", "a2"), ("a2", "a1"), "id 257 is 'a1' there and 'a2' in the target"),
    ],
)
def test_the_first_id_that_differs_is_named(
    draft: tuple[str, ...], target: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ModelLoadError, match=f"draft: .*{words}"):
        check_same_tokenizer(Role.DRAFT, byte_tokenizer(draft), byte_tokenizer(target))


def test_one_vocabulary_cut_in_another_way_is_refused_with_the_ids() -> None:
    lower, plain = byte_tokenizer(), byte_tokenizer()
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()
    t, capital = (plain(letter)["input_ids"][0] for letter in "tT")
    with pytest.raises(ModelLoadError, match=f"token 0 of .The.*id {t} there and id {capital} in"):
        check_same_tokenizer(Role.DRAFT, lower, plain)


def test_one_that_drops_the_end_of_a_text_is_refused() -> None:
    trimmed, plain = byte_tokenizer(), byte_tokenizer()
    trimmed.backend_tokenizer.normalizer = normalizers.Replace(Regex("#g$"), "")
    with pytest.raises(ModelLoadError, match="is id None there and id"):
        check_same_tokenizer(Role.INTERMEDIATE, trimmed, plain)


def test_a_space_in_front_is_noticed() -> None:
    prefixed, plain = byte_tokenizer(), byte_tokenizer()
    prefixed.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=True, use_regex=False
    )
    with pytest.raises(ModelLoadError, match="cuts texts in another way"):
        check_same_tokenizer(Role.DRAFT, prefixed, plain)


def test_padded_rows_are_allowed_and_missing_ones_are_not() -> None:
    decoders = tiny_models().decoders  # 264 rows
    check_decoders(decoders, 257)
    check_decoders(decoders, 264)
    with pytest.raises(ModelLoadError, match="tiny-draft has 264 output rows, but its tokenizer"):
        check_decoders(decoders, 265)


def test_models_in_two_places_are_refused() -> None:
    class Elsewhere:
        name, vocab_size, device = "far", 264, "cuda:1"

    decoders: dict[Role, Any] = {**tiny_models().decoders, Role.DRAFT: Elsewhere()}
    with pytest.raises(ModelLoadError, match="draft: far is on cuda:1, and the target on cpu"):
        check_decoders(decoders, 257)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [((None, None), []), ((2, None, 2), [2]), ((2, [3, 4], 4), [2, 3, 4]), (([], (7,)), [7])],
)
def test_end_ids_are_one_a_list_or_none(sources: tuple[object, ...], expected: list[int]) -> None:
    assert sorted(end_ids(*sources)) == expected


QWEN = {
    "do_sample": True, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1,
    "eos_token_id": [5, 6],
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            QWEN,
            {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1},
        ),
        ({"temperature": 0.7, "top_p": 0.9}, {}),  # transformers does not read them either
        ({"do_sample": False, "temperature": 0.7}, {"temperature": 0.0}),
        ({"do_sample": True, "temperature": -3, "top_p": "x", "top_k": 5}, {"top_k": 5}),
        ({}, {}),
    ],
)
def test_the_authors_sampling(config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sampling_defaults(config) == expected


def test_a_generation_config_may_be_missing_or_broken(tmp_path: Path) -> None:
    assert read_generation_config(tmp_path) == {}
    file = tmp_path / "generation_config.json"
    for text in ("{", "[1]"):
        file.write_text(text)
        assert read_generation_config(tmp_path) == {}
    file.write_text(json.dumps(QWEN))
    assert read_generation_config(tmp_path) == QWEN
