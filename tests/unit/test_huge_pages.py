"""Large pages: the right blocks are asked for, data stays as it was, refusals are ignored."""

from __future__ import annotations

import pytest
import torch

from fastinfer.models import huge_pages
from fastinfer.models.huge_pages import MADV_COLLAPSE, MADV_HUGEPAGE, PAGE, use_huge_pages

Call = tuple[int, int, int]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    made: list[Call] = []

    def refuse(address: int, size: int, advice: int) -> int:
        made.append((address, size, advice))
        return -1

    monkeypatch.setattr(huge_pages, "_madvise", lambda: refuse)
    return made


def test_every_block_that_the_bytes_touch_is_asked_for_once(calls: list[Call]) -> None:
    use_huge_pages(3 * PAGE - 1, PAGE + 2)
    assert [address // PAGE for address, _, _ in calls] == [2, 2, 3, 3, 4, 4]
    assert {size for _, size, _ in calls} == {PAGE}
    assert [advice for _, _, advice in calls] == [MADV_HUGEPAGE, MADV_COLLAPSE] * 3


def test_memory_that_is_not_filled_yet_is_only_advised(calls: list[Call]) -> None:
    use_huge_pages(PAGE, PAGE, collapse=False)
    assert calls == [(PAGE, PAGE, MADV_HUGEPAGE)]


def test_no_bytes_ask_for_nothing(calls: list[Call]) -> None:
    use_huge_pages(PAGE, 0)
    assert calls == []


def test_data_stays_as_it_was() -> None:
    data = torch.randn(3 * PAGE // 4)
    before = data.clone()
    use_huge_pages(data.data_ptr(), data.nbytes)
    assert torch.equal(data, before)


def test_other_systems_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages.sys, "platform", "darwin")
    huge_pages._madvise.cache_clear()
    try:
        assert huge_pages._madvise() is None
        use_huge_pages(PAGE, PAGE)
    finally:
        huge_pages._madvise.cache_clear()
