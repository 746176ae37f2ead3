"""Whole characters only, never one taken back, and stop texts found wherever they fall."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fastinfer.models.detokenizer import Detokenizer
from fastinfer.text import StopText, StreamDecoder


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    """One token per byte, id = index of the byte's character in GPT-2's alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="module")
def byte_fallback() -> Tokenizer:
    """Llama's kind: spaces as ▁, unknown characters as byte tokens."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocab |= {piece: 256 + i for i, piece in enumerate(["▁", "▁a", "a", "b", "▁the"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[("▁", "a")], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def pieces(tokenizer: Tokenizer, ids: list[int], context: list[int] | None = None) -> list[str]:
    decoder = StreamDecoder(Detokenizer(tokenizer), context or [])
    return [*(decoder.push(token_id) for token_id in ids), decoder.flush()]


@given(st.text(max_size=60))
@settings(deadline=None)
def test_pieces_joined_are_the_text(byte_level: Tokenizer, text: str) -> None:
    ids = byte_level.encode(text).ids
    assert "".join(pieces(byte_level, ids)) == text


@given(st.lists(st.integers(0, 255), max_size=60))
@settings(deadline=None)
def test_any_bytes_join_to_the_tokenizers_decoding(byte_level: Tokenizer, ids: list[int]) -> None:
    assert "".join(pieces(byte_level, ids)) == byte_level.decode(ids)


@given(st.text(max_size=40))
@settings(deadline=None)
def test_no_piece_holds_a_broken_character(byte_level: Tokenizer, text: str) -> None:
    text = text.replace("\ufffd", "")
    assert "\ufffd" not in "".join(pieces(byte_level, byte_level.encode(text).ids))


def test_the_completing_token_carries_the_character(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a🌊字").ids
    assert pieces(byte_level, ids) == ["a", "", "", "", "🌊", "", "", "字", ""]


def test_a_long_text_is_decoded_in_a_window(byte_level: Tokenizer) -> None:
    class Counting(Detokenizer):
        longest = 0

        def __call__(self, ids: list[int]) -> str:
            self.longest = max(self.longest, len(ids))
            return super().__call__(ids)

    text = "the sea 🌊 and the 字 " * 50
    for context_ids, longest in ((0, 5), (4, 40)):
        decode = Counting(byte_level)
        decode.context_ids = context_ids
        decoder = StreamDecoder(decode)
        joined = "".join(decoder.push(i) for i in byte_level.encode(text).ids) + decoder.flush()
        assert joined == text
        assert decode.longest < longest


@given(st.lists(st.integers(0, 255), max_size=20), st.lists(st.integers(0, 255), max_size=40))
@settings(deadline=None)
def test_pieces_are_the_same_with_and_without_context(
    byte_level: Tokenizer, context: list[int], ids: list[int]
) -> None:
    quick, plain = Detokenizer(byte_level), Detokenizer(byte_level)
    assert quick.context_ids == 0
    plain.context_ids = 4
    left, right = StreamDecoder(quick, context), StreamDecoder(plain, context)
    assert [left.push(i) for i in ids] == [right.push(i) for i in ids]
    assert left.flush() == right.flush()


@pytest.mark.parametrize("cut", range(9))
@pytest.mark.parametrize("text", ["a字b", "🌊🌊", "\ufffd字"])
def test_a_prompt_may_end_inside_a_character(byte_level: Tokenizer, text: str, cut: int) -> None:
    """The token that completes it carries it; nothing that was whole comes again."""
    ids = byte_level.encode(text).ids
    before = byte_level.decode(ids[:cut]) if cut else ""
    known = before if text.startswith(before) else before.rstrip("\ufffd")
    assert "".join(pieces(byte_level, ids[cut:], ids[:cut])) == text[len(known) :]


def test_bytes_that_never_complete_come_at_the_end(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("a🌊").ids[:-1]
    assert pieces(byte_level, ids) == ["a", "", "", "", "\ufffd"]


@given(st.lists(st.integers(0, 260), min_size=1, max_size=40))
@settings(deadline=None)
def test_byte_fallback_never_takes_text_back(byte_fallback: Tokenizer, ids: list[int]) -> None:
    # Here a run of byte tokens can turn broken again as it grows: what was shown must stay.
    context = [258]  # "a": what follows a prompt keeps its leading space
    joined = "".join(pieces(byte_fallback, ids, context))
    whole = byte_fallback.decode([*context, *ids])[1:]
    if "\ufffd" not in whole:
        assert joined == whole
    clean = whole.split("\ufffd")[0]
    assert joined.startswith(clean) or clean.startswith(joined.split("\ufffd")[0])


def test_a_leading_space_after_the_prompt_is_kept(byte_fallback: Tokenizer) -> None:
    assert pieces(byte_fallback, [260], [258]) == [" the", ""]


@pytest.mark.parametrize("cuts", list(itertools.product(range(1, 4), repeat=3)))
def test_the_earliest_stop_is_found_however_the_text_is_cut(cuts: tuple[int, ...]) -> None:
    # transformers#48039: a stop text completed inside a block was honoured in 6 of 86 cases.
    text, stop = "one two three two", StopText(["two", "three", "wo t"])
    shown, position = 0, 0
    sizes = itertools.cycle(cuts)
    while position < len(text):
        piece = text[position : (position := position + next(sizes))]
        hit = stop.push(piece)
        assert stop.safe_length >= shown
        shown = stop.safe_length
        assert text[:shown] == "one "[:shown] or not hit
        if hit:
            break
    assert stop.found == 4
    assert shown == 4


def test_a_possible_beginning_of_a_stop_is_held_back() -> None:
    stop = StopText(["END"])
    stop.push("the EN")
    assert stop.safe_length == 4
    stop.push("D")
    assert (stop.found, stop.safe_length) == (4, 4)
    other = StopText(["END"])
    other.push("the EN")
    other.push("TER")
    assert (other.found, other.safe_length) == (None, 9)


def test_without_stops_everything_is_safe() -> None:
    stop = StopText([])
    assert not stop.push("anything")
    assert stop.safe_length == 8


def test_inactive_pieces_are_never_searched() -> None:
    stop = StopText(["ab"])
    assert not stop.push("ab", active=False)
    assert not stop.push("b")
    assert stop.push("ab")
    assert stop.found == 3
