"""The page as built: wiring, settings and assets, without a browser."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from fastapi.testclient import TestClient

import app as app_module
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.events import Role
from fastinfer.ui.demo import build_demo
from fastinfer.ui.form import FIELDS, form_to_config
from fastinfer.ui.stream_view import ASSETS
from fastinfer.ui.theme import page_settings
from tests.browser.fake_engine import FakeEngine


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("error", DeprecationWarning)
        return dict(build_demo(FakeEngine()).get_config_file())


def component(config: dict[str, Any], elem_id: str) -> dict[str, Any]:
    found = [c["props"] for c in config["components"] if c["props"].get("elem_id") == elem_id]
    assert len(found) == 1, elem_id
    return dict(found[0])


def stop_button(config: dict[str, Any]) -> int:
    """The id of Generate's own Stop button."""
    (found,) = [c["id"] for c in config["components"] if c["props"].get("elem_id") == "stop"]
    return int(found)


def test_no_event_of_the_page_is_public_but_the_one_endpoint(config: dict[str, Any]) -> None:
    public = [dep for dep in config["dependencies"] if dep["api_visibility"] != "private"]
    assert [dep["api_name"] for dep in public] == ["generate"]
    assert public[0]["targets"] == [] and len(config["dependencies"]) > 1


def test_stop_cancels_the_run_and_goes_round_the_queue(config: dict[str, Any]) -> None:
    pressed = [(stop_button(config), "click")]
    (stop,) = [
        dep for dep in config["dependencies"] if dep["cancels"] and dep["targets"] == pressed
    ]
    assert stop["queue"] is False
    runs = [dep for dep in config["dependencies"] if dep["id"] in stop["cancels"]]
    assert len(runs) == 1 and len(runs[0]["inputs"]) == 1 + len(FIELDS)


def test_one_run_at_a_time() -> None:
    demo = build_demo(FakeEngine())
    limited = [fn for fn in demo.fns.values() if fn.concurrency_id == "engine"]
    assert limited and {fn.concurrency_limit for fn in limited} == {1}


def test_gradios_queue_leaves_the_interpreter_to_the_engine() -> None:
    untouched, demo = gr.Blocks().queue()._queue, build_demo(FakeEngine())._queue
    for name, least in (("sleep_when_free", 0.02), ("progress_update_sleep_when_free", 0.1)):
        assert hasattr(untouched, name), "gradio waits in some other way now: measure again"
        assert getattr(demo, name) >= least


def test_the_form_as_it_opens_is_a_good_request(config: dict[str, Any]) -> None:
    by_id = {"stop": "stop_texts"}
    opened = [component(config, by_id.get(name, name)).get("value") for name in FIELDS]
    made = form_to_config(opened)
    assert made == DecodeConfig.from_mapping(
        {
            "method": "cascade", "gamma_policy": "cost_aware", "max_new_tokens": 160,
            "temperature": 0.8,
        }
    )  # fmt: skip
    assert component(config, "prompt")["value"]


def test_without_an_intermediate_model_there_is_no_cascade() -> None:
    engine = FakeEngine()
    del engine.info.models[Role.INTERMEDIATE]
    method = component(dict(build_demo(engine).get_config_file()), "method")
    assert [value for _, value in method["choices"]] == ["autoregressive", "speculative"]
    assert method["value"] == "speculative"


@pytest.mark.parametrize(("asked", "on"), [(None, False), ("False", False), ("True", True)])
def test_analytics_only_where_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, on: bool
) -> None:
    seen: dict[str, Any] = {}

    class Blocks(gr.Blocks):
        def __init__(self, **kwargs: Any) -> None:
            seen.update(kwargs)
            super().__init__(analytics_enabled=False)

    monkeypatch.setattr("fastinfer.ui.demo.gr.Blocks", Blocks)
    monkeypatch.delenv("GRADIO_ANALYTICS_ENABLED", raising=False)
    if asked is not None:
        monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", asked)
    build_demo(FakeEngine())
    assert seen["analytics_enabled"] is on


def test_settings_name_files_that_exist_and_switch_off_what_they_should() -> None:
    settings = page_settings()
    for path in (*settings["allowed_paths"], *settings["css_paths"]):
        assert Path(path).is_file()
    assert settings["ssr_mode"] is False and settings["run_history"] is False


def test_routes_and_page_share_one_app() -> None:
    with TestClient(app_module.build_app(FakeEngine())) as client:  # type: ignore[arg-type]
        assert client.get("/health").json()["status"] == "ok"
        page = client.get("/")
        assert page.status_code == 200 and "fastinfer" in page.text
        assert "https://fonts.g" not in page.text
        for path in page_settings()["allowed_paths"]:
            assert client.get(f"/gradio_api/file={path}").status_code == 200
        assert client.get(f"/gradio_api/file={Path(app_module.__file__)}").status_code == 403
        assert "swagger" not in client.get("/docs").text.lower()  # that page asks a CDN


def test_a_preset_that_does_not_exist_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(preset: str) -> None:
        raise ConfigError("preset", f"must be one of nano, not {preset!r}")

    monkeypatch.setattr(app_module, "load", refuse)
    monkeypatch.setattr("sys.argv", ["app.py", "--preset", "giant"])
    with pytest.raises(SystemExit) as caught:
        app_module.main()
    assert caught.value.code == 2


def test_examples_are_named_prompts_of_every_kind() -> None:
    examples = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    assert all(set(example) - {"set"} == {"name", "kind", "prompt"} for example in examples)
    assert len({example["name"] for example in examples}) == len(examples)
    kinds = [example["kind"] for example in examples]
    assert kinds.count("story") >= 2 and {"copy", "list", "long"} <= set(kinds)
    for example in examples:
        # A prompt that ends in a space would ask the model for a word that begins without one.
        assert example["prompt"] == example["prompt"].strip()
        assert (len(example["prompt"]) > 5000) is (example["kind"] == "long")
