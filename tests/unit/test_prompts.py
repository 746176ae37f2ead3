"""Prompts of a benchmark: where they come from, and how they are cut to their first tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastinfer.config import ConfigError
from fastinfer.evaluation.prompts import Prompt, first_tokens, load_prompts


def encode(text: str) -> list[int]:
    return [ord(character) for character in text]


def test_prompts_come_from_examples_a_file_a_list_or_a_folder(tmp_path: Path) -> None:
    assert len(load_prompts("examples")) > 3
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "list.json").write_text('["x", "y"]')
    assert load_prompts(str(tmp_path / "a.txt")) == [Prompt(name="a", text="one")]
    assert [p.text for p in load_prompts(str(tmp_path / "list.json"))] == ["x", "y"]
    assert [p.name for p in load_prompts(str(tmp_path))] == ["a", "b"]


@pytest.mark.parametrize("content", ["{}", "[]", "[1]", "no json"])
def test_a_list_of_prompts_that_is_none(content: str, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match="JSON list of texts"):
        load_prompts(str(file))


def test_a_prompt_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_prompts(str(file))


def test_prompts_are_cut_to_their_first_tokens_and_short_ones_are_named() -> None:
    prompts = [Prompt(name="long", text="abcdef"), Prompt(name="short", text="xy")]
    ids, notes = first_tokens(prompts, encode, 3)
    assert ids == {"long": (97, 98, 99), "short": (120, 121)}
    assert notes == ["short has 2 tokens, fewer than 3: used whole"]


def test_a_book_is_not_encoded_whole() -> None:
    seen: list[int] = []

    def counting(text: str) -> list[int]:
        seen.append(len(text))
        return encode(text)

    first_tokens([Prompt(name="book", text="x" * 1_000_000)], counting, 10)
    assert sum(seen) < 1000


def test_tokens_longer_than_expected_are_still_all_there() -> None:
    """One token per hundred characters: the beginning alone would give too few."""
    ids, _ = first_tokens([Prompt(name="p", text="x" * 1000)], lambda t: [1] * (len(t) // 100), 9)
    assert len(ids["p"]) == 9


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match="prompts: p is empty"):
        first_tokens([Prompt(name="p", text="")], encode, 4)
