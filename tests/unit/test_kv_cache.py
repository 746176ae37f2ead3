"""The static cache: cursor, growth, and that attention reads exactly the live entries."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastinfer.models.kv_cache import CHUNK, StaticKVCache

LAYERS, HEADS, DIM = 2, 3, 4


def empty() -> StaticKVCache:
    return StaticKVCache(
        num_layers=LAYERS,
        num_kv_heads=HEADS,
        head_dim=DIM,
        dtype=torch.float32,
        device=torch.device("cpu"),
    )


def append(cache: StaticKVCache, tokens: list[int]) -> None:
    """Write entries that name their token, layer and kind (key or value)."""
    views = cache.views(len(tokens))
    for layer in range(LAYERS):
        entry = torch.tensor(tokens, dtype=torch.float32)[:, None]
        views.new[layer][:, :HEADS] = entry + layer / 10
        views.new[layer][:, HEADS:] = -(entry + layer / 10)
    cache.advance(len(tokens))


def held(cache: StaticKVCache, layer: int) -> tuple[list[float], list[float]]:
    """What attention would read next to one new token: first head, first value."""
    views = cache.views(1)
    keys, values = views.keys[layer][0, 0, :-1, 0], views.values[layer][0, 0, :-1, 0]
    assert views.keys[layer].shape == (1, HEADS, cache.num_entries() + 1, DIM)
    return keys.tolist(), values.tolist()


def test_an_empty_cache_holds_nothing() -> None:
    cache = empty()
    assert (cache.length, cache.num_entries(), cache.num_bytes(), cache.capacity) == (0, 0, 0, 0)


def test_bytes_are_those_of_the_live_entries() -> None:
    cache = empty()
    append(cache, [1, 2, 3])
    assert cache.num_bytes() == 3 * LAYERS * 2 * HEADS * DIM * 4
    cache.rollback(1)
    assert cache.num_bytes() == 1 * LAYERS * 2 * HEADS * DIM * 4


def test_views_alone_move_nothing() -> None:
    cache = empty()
    cache.views(5)
    assert (cache.length, cache.num_entries()) == (0, 0)


def test_rollback_copies_nothing_and_new_entries_replace_old_ones() -> None:
    cache = empty()
    append(cache, [1, 2, 3, 4])
    where = cache.views(1).keys[0].data_ptr()
    cache.rollback(2)
    append(cache, [9])
    assert cache.views(1).keys[0].data_ptr() == where
    assert held(cache, 0) == ([1.0, 2.0, 9.0], [-1.0, -2.0, -9.0])


def test_capacity_follows_the_request_in_chunks() -> None:
    cache = empty()
    append(cache, [1])
    assert cache.capacity == CHUNK
    cache.reserve(CHUNK)
    assert cache.capacity == CHUNK
    append(cache, list(range(CHUNK)))
    assert cache.capacity == 2 * CHUNK
    assert held(cache, 1)[0][:3] == pytest.approx([1.1, 0.1, 1.1])


def test_behind_a_long_prompt_there_is_room() -> None:
    """No copy of the whole cache in the first tokens that are made."""
    cache = empty()
    append(cache, list(range(6 * CHUNK - 1)))
    assert cache.capacity == 8 * CHUNK


def test_a_rollback_never_moves_forward() -> None:
    cache = empty()
    append(cache, [1, 2])
    with pytest.raises(AssertionError):
        cache.rollback(3)


def test_writing_outside_inference_mode_is_allowed() -> None:
    """Whoever drops entries later writes into the same storage from ordinary code."""
    with torch.inference_mode():
        cache = empty()
        append(cache, [1])
    cache.views(1).keys[0].zero_()
    assert held(cache, 0)[0] == [0.0]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, CHUNK + 20)),
        st.tuples(st.just("rollback"), st.integers(0, 2 * CHUNK)),
    ),
    max_size=8,
)


@given(STEPS)
def test_any_order_of_appends_and_rollbacks_reads_like_a_list(
    steps: list[tuple[str, int]],
) -> None:
    cache, expected, token = empty(), [], 0
    for name, number in steps:
        if name == "append":
            tokens = list(range(token, token + number))
            token += number
            append(cache, tokens)
            expected += tokens
        else:
            length = min(number, cache.length)
            cache.rollback(length)
            expected = expected[:length]
        assert cache.length == cache.num_entries() == len(expected)
    assert held(cache, 0) == (expected, [-x for x in expected])
