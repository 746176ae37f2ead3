"""Fields that follow the models in use: choices, and what becomes of a value that is gone."""

from __future__ import annotations

from typing import Any

import gradio as gr
import pytest

from fastinfer.events import Role
from fastinfer.http.line import InLine, Line
from fastinfer.shelf import CurrentEngine, EngineShelf
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.compare_tab import third_kinds
from fastinfer.ui.controls import labelled_choices
from fastinfer.ui.demo import build_demo
from fastinfer.ui.roles import RoleField
from fastinfer.ui.variant import acting, drafting_kinds, kinds_for
from tests.browser.fake_engine import FakeEngine

ALL = set(Role)
ALONE = {Role.TARGET}
PAIR = {Role.TARGET, Role.DRAFT}


def kinds(roles: set[Role]) -> list[tuple[str, str]]:
    return [(kind, kind) for kind in kinds_for(roles)]


@pytest.mark.parametrize(
    ("roles", "value", "wanted"),
    [
        (ALL, "cascade", "cascade"),
        (PAIR, "cascade", "speculative"),
        (ALONE, "cascade", "prompt-lookup"),
        (ALONE, ["autoregressive", "cascade"], ["autoregressive"]),
        (ALONE, ["cascade"], ["autoregressive", "prompt-lookup"]),
    ],
)
def test_a_value_that_is_gone_gives_way(roles: set[Role], value: Any, wanted: Any) -> None:
    field = RoleField(
        field=gr.Dropdown([]), choices=kinds, preferred=("speculative", "prompt-lookup")
    )
    update = field.update(roles, value)
    assert [key for _, key in update["choices"]] == kinds_for(roles)
    assert update.get("value", value) == wanted
    assert ("value" in update) is (wanted != value)


def test_each_role_brings_its_methods() -> None:
    assert kinds_for(ALONE) == ["autoregressive", "prompt-lookup"]
    assert kinds_for(ALL) == [
        "autoregressive",
        "speculative",
        "prompt-lookup",
        "lookup-first",
        "cascade",
    ]
    assert drafting_kinds(PAIR) == ["speculative", "prompt-lookup", "lookup-first"]
    assert third_kinds(ALONE) == ["none", "autoregressive", "prompt-lookup"]
    assert [value for _, value in acting(PAIR)] == ["draft", "target"]
    assert [value for _, value in labelled_choices("method", PAIR)] == [
        "autoregressive", "speculative",
    ]  # fmt: skip


def test_another_preset_reaches_every_form() -> None:
    """On opening the page and after a load, by the events that the page has."""
    engine = FakeEngine()
    shelf = EngineShelf(engine)  # type: ignore[arg-type]
    line = Line(4)
    page = build_demo(
        InLine(CurrentEngine(shelf), line),  # type: ignore[arg-type]
        Backstage(shelf=shelf, line=line),
    )
    following = [fn for fn in page.fns.values() if fn.fn and "follow" in fn.fn.__qualname__]
    assert len(following) == 2
    for event in following:
        ids = [field.elem_id for field in event.outputs]
        assert ids == [
            "method", "draft", "intermediate", "compare-b-method", "compare-b-press-on",
            "compare-c-method", "compare-c-press-on", "proof-method", "proof-press-on",
            "benchmark-methods",
        ]  # fmt: skip
        assert [field.elem_id for field in event.inputs] == ids
        engine.info.models.clear()
        engine.info.models.update(dict.fromkeys(ALONE, "x"))
        values = [field.value for field in event.inputs]
        assert event.fn is not None
        method, draft, *_ = event.fn(*values)
        assert [value for _, value in method["choices"]] == ["autoregressive", "speculative"]
        assert method["value"] == "speculative" and draft["value"] != "model"
