"""A corpus cut into windows: every token counts once, and bytes add up."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import byte_tokenizer

from fastinfer.config import ConfigError
from fastinfer.evaluation.windows import Coder, Document, coder_of, cut

LETTERS = Coder(
    encode=lambda text: [ord(c) - ord("a") for c in text],
    decode=lambda ids: "".join(chr(i + ord("a")) for i in ids),
)


@settings(deadline=None, max_examples=100)
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    context=st.integers(2, 20),
    data=st.data(),
)
def test_every_token_behind_the_first_part_counts_once(
    lengths: list[int], context: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, context - 1))
    documents = [
        Document(name=str(d), text="".join(chr(97 + (7 * d + i) % 26) for i in range(length)))
        for d, length in enumerate(lengths)
    ]
    lead = context - stride
    if all(length <= lead for length in lengths):
        with pytest.raises(ConfigError, match=f"no text of more than {lead} tokens"):
            cut(documents, LETTERS, context=context, stride=stride)
        return
    windows, notes = cut(documents, LETTERS, context=context, stride=stride)
    for document in documents:
        mine = [w for w in windows if w.document == document.name]
        counted = [i for w in mine for i in w.ids[w.first :]]
        assert LETTERS.decode(counted) == document.text[lead:]
        assert sum(w.num_bytes for w in mine) == len(document.text[lead:])
        for w in mine:
            assert w.first == lead
            assert len(w.ids) <= context
            assert LETTERS.decode(list(w.ids)) in document.text, "a window is a piece of the text"
    assert bool(notes) == any(length <= lead for length in lengths)


def test_what_the_tokenizer_puts_in_front_is_in_every_window_and_never_counts() -> None:
    coder = Coder(encode=LETTERS.encode, decode=LETTERS.decode, prefix=(99,))
    windows, _ = cut([Document(name="d", text="abcdefgh")], coder, context=4, stride=2)
    assert [w.ids for w in windows] == [
        (99, 0, 1, 2), (99, 2, 3, 4), (99, 4, 5, 6), (99, 6, 7),
    ]  # fmt: skip
    assert [w.first for w in windows] == [2, 2, 2, 2]
    with pytest.raises(ConfigError, match=r"stride: must be from 1 to 3, .* not 4"):
        cut([Document(name="d", text="abcdefgh")], coder, context=4, stride=4)


def test_few_windows_are_spread_over_the_whole_corpus() -> None:
    documents = [Document(name=str(d), text="abcdefghij" * 2) for d in range(5)]
    windows, notes = cut(documents, LETTERS, context=10, stride=5, max_windows=5)
    assert [w.document for w in windows] == ["0", "1", "2", "3", "4"]
    assert notes == ["5 of 15 windows, at even distances"]


def test_bytes_of_text_whose_characters_are_split_over_tokens() -> None:
    """One token a byte: windows end inside characters, and yet their bytes add up."""
    coder = coder_of(byte_tokenizer())
    text = "añ→🙂漢字é " * 9
    tokens = len(text.encode())
    for stride in (1, 2, 3, 5, 7, 11):
        windows, _ = cut([Document(name="d", text=text)], coder, context=12, stride=stride)
        head = coder.decode(coder.encode(text)[: 12 - stride]).rstrip("\ufffd")
        assert sum(w.num_bytes for w in windows) == tokens - len(head.encode())


def test_a_sign_of_broken_text_is_text() -> None:
    coder = coder_of(byte_tokenizer())
    windows, _ = cut([Document(name="d", text="ab\ufffd\ufffd")], coder, context=9, stride=7)
    assert sum(w.num_bytes for w in windows) == 6
