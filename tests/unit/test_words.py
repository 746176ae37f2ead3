"""The page in Chinese: every word of the form, and the table of what the views say."""

from __future__ import annotations

import json
import re

import pytest

from fastinfer.ui import compare_record, labels, proof_tab, quality_tab
from fastinfer.ui.benchmark_tab import INTRO
from fastinfer.ui.charts import live_charts
from fastinfer.ui.skeleton import skeleton
from fastinfer.ui.words import CHINESE, VIEW_WORDS, english, view_words

TABLE = json.loads(VIEW_WORDS.read_text(encoding="utf-8"))
HAN = re.compile(r"[一-鿿]")
SAME = {"γ", "Top-k", "Top-p", "Min-p", "Typical", "JSON", "CSV", "HTML", "–"}


def test_every_word_of_the_form_has_its_chinese() -> None:
    assert set(CHINESE) == set(english())
    assert all(HAN.search(text) or text in SAME for text in CHINESE.values())


def test_every_fixed_word_of_the_stream_view_has_its_chinese() -> None:
    markup = skeleton(live_charts())
    fixed = re.findall(r"data-word>([^<]+)<", markup)
    assert len(fixed) > 40
    patterns = [re.compile(re.escape(e).replace(r"\{\}", "(.+?)")) for e in TABLE["sentences"]]
    for text in set(fixed) - SAME:
        assert text in TABLE["words"] or any(p.fullmatch(text) for p in patterns), text


def test_what_the_tabs_open_with_has_its_chinese() -> None:
    for text in (INTRO, quality_tab.INTRO, proof_tab.INTRO, compare_record.INTRO):
        assert text in TABLE["words"]
    for label in labels.ORIGIN_LABELS.values():
        assert label.name in TABLE["words"] and label.help in TABLE["words"]
    assert set(labels.REASONS.values()) <= set(TABLE["words"])


@pytest.mark.parametrize(("english", "chinese"), TABLE["sentences"].items())
def test_a_sentence_keeps_what_stands_in_its_holes(english: str, chinese: str) -> None:
    holes = english.count("{}")
    assert sorted(set(re.findall(r"\{(\d)\}", chinese))) == [str(n) for n in range(1, holes + 1)]
    assert holes < 10 and HAN.search(chinese)


def test_the_view_gets_the_table_with_gradios_names_of_the_language() -> None:
    assert set(view_words()) == {"locales", "words", "sentences"}
    assert "zh-CN" in view_words()["locales"]
