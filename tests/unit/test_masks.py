"""Masks: what each token of a block may look at, whatever was asked for before."""

from __future__ import annotations

import pytest
import torch

from fastinfer.models.masks import CHUNK, LONGEST_KEPT, Masks


@pytest.fixture(scope="module")
def masks() -> Masks:
    return Masks(torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("window", [None, 1, 3, 40])
@pytest.mark.parametrize("count", [1, 2, 5, LONGEST_KEPT, LONGEST_KEPT + 1])
def test_each_token_sees_its_past_and_no_more(masks: Masks, count: int, window: int | None) -> None:
    for entries in (7, 0, 300, CHUNK + 1, 7):  # shorter after longer: a kept mask is cut anew
        mask = masks.of(entries, count, window)
        back = torch.arange(entries, entries + count)[:, None] - torch.arange(entries + count)
        seen = (back >= 0) & (back < (window or 10**9))
        if mask is None:
            assert seen.all()
        else:
            assert torch.equal(mask, torch.where(seen, 0.0, -torch.inf))


def test_a_short_mask_is_not_made_again(masks: Masks) -> None:
    first, second = masks.of(20, 4, None), masks.of(21, 4, None)
    assert first is not None and second is not None
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
