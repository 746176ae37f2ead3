"""Every route on a fake engine: what it answers, and the figures of /metrics."""

from __future__ import annotations

import json
import re

import pytest
from fastapi.testclient import TestClient

import fastinfer
from fastinfer.events import Role
from tests.browser.fake_engine import FAKE_SEED, TRAPS, FakeEngine, origins_of
from tests.http_routes import BODIES, client_of, error_of, sent_events


def test_health_names_what_is_loaded(client: TestClient) -> None:
    response = client.get("/health")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "version": fastinfer.__version__,
        "preset": "fake",
        "models": {
            "draft": "fake-draft",
            "intermediate": "fake-intermediate",
            "target": "fake-target",
        },
        "device": "cpu",
        "dtype": "float32",
    }


def test_predict_gives_text_and_figures(client: TestClient, engine: FakeEngine) -> None:
    got = client.post("/predict", json={"prompt": "a b", "max_new_tokens": 6, "seed": 3}).json()
    assert got["text"] == "".join(TRAPS[:6])
    assert got["finish_reason"] == "length" and got["seed"] == 3
    assert got["stats"]["tokens"] == 6 and got["stats"]["ttft_ms"] == 20.0
    assert [t["origin"] for t in got["tokens"]] == origins_of("speculative", 6)
    assert engine.requests[0].max_new_tokens == 6


def test_generate_streams_the_engines_events(client: TestClient) -> None:
    response = client.post("/generate", json={"prompt": "p", "max_new_tokens": 6})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(each) for each in sent_events(response.text)]
    assert [each["type"] for each in events] == ["started", "step", "step", "step", "finished"]
    text = "".join(t["text"] for e in events if e["type"] == "step" for t in e["tokens"])
    assert text == events[-1]["text"] == "".join(TRAPS[:6])


@pytest.mark.parametrize("path", BODIES)
def test_without_a_draft_model_the_text_drafts_unless_the_body_says_who(path: str) -> None:
    engine = FakeEngine()
    del engine.info.models[Role.DRAFT]
    client = client_of(engine)
    for more in ({}, {"draft": None}, {"draft": "self"}, {"draft": "model"}):
        assert client.post(path, json={**BODIES[path], **more}).status_code == 200
    drafts = [config.draft for config in engine.requests]
    assert drafts == ["prompt-lookup", "prompt-lookup", "self", "model"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_whole_and_streamed_say_the_same(client: TestClient, path: str) -> None:
    body = {**BODIES[path], "max_tokens": 9}
    whole = client.post(path, json=body).json()
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    *lines, done = sent_events(client.post(path, json=streamed).text)
    assert done == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    assert len({chunk["id"] for chunk in chunks}) == 1
    *told, usage = chunks
    choices = [chunk["choices"][0] for chunk in told]
    chat = "chat" in path
    if chat:
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        text = "".join(choice["delta"].get("content", "") for choice in choices)
        assert whole["choices"][0]["message"]["content"] == text
    else:
        text = "".join(choice["text"] for choice in choices)
        assert whole["choices"][0]["text"] == text
    assert text == "".join(TRAPS[:9])
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["length"]
    assert usage["choices"] == [] and usage["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] == 9
    assert all(chunk["usage"] is None for chunk in told)
    origins = [t["origin"] for c in told for t in c.get("fastinfer", {}).get("tokens", [])]
    assert origins == [t["origin"] for t in whole["fastinfer"]["tokens"]]
    assert origins == origins_of("speculative", 9)
    ours = told[-1]["fastinfer"]
    assert ours["timings"] == whole["fastinfer"]["timings"]
    assert ours["seed"] == FAKE_SEED and "options" in ours


def test_no_usage_where_none_is_asked_for(client: TestClient) -> None:
    text = client.post("/v1/completions", json={"prompt": "p", "stream": True}).text
    assert all("usage" not in json.loads(each) for each in sent_events(text)[:-1])


def test_models_lists_the_loaded_one(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [(m["id"], m["object"]) for m in listed["data"]] == [("fake", "model")]


def test_a_model_is_named_by_its_preset_or_its_target(client: TestClient) -> None:
    for name, status in (("fake", 200), ("fake-target", 200), ("gpt-5", 404), ("fake-draft", 404)):
        response = client.post("/v1/completions", json={"prompt": "p", "model": name})
        assert response.status_code == status
        if status == 404:
            error = error_of("/v1/completions", response)
            assert error["code"] == "model_not_found" and error["param"] == "model"
    assert client.post("/v1/completions", json={"prompt": "p", "model": 3}).status_code == 422


def values(text: str) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in re.findall(r"^([^#\s]+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)
    }


def test_metrics_count_answers_tokens_times_and_acceptance(client: TestClient) -> None:
    client.post("/predict", json={"prompt": "a b c", "max_new_tokens": 8})
    client.post("/predict", json={"prompt": "p", "temperature": -1})
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    got = values(response.text)
    assert got['fastinfer_requests_total{route="/predict",status="200"}'] == 1
    assert got['fastinfer_requests_total{route="/predict",status="422"}'] == 1
    assert got['fastinfer_runs_total{method="speculative",reason="length"}'] == 1
    assert got["fastinfer_prompt_tokens_total"] == 3
    tokens = sum(n for name, n in got.items() if name.startswith("fastinfer_tokens_total"))
    assert tokens == 8
    assert got['fastinfer_ttft_seconds_sum{method="speculative"}'] == pytest.approx(0.02)
    assert got['fastinfer_tpot_seconds_count{method="speculative"}'] == 1
    # Rounds of the fake: 3 tested and 2 accepted, then 3 and 3.
    tested = [got[f'fastinfer_tested_total{{position="{i}",verifier="target"}}'] for i in (1, 2, 3)]
    accepted = [
        got[f'fastinfer_accepted_total{{position="{i}",verifier="target"}}'] for i in (1, 2, 3)
    ]
    assert (tested, accepted) == ([2, 2, 2], [2, 2, 1])
    assert got["fastinfer_running"] == got["fastinfer_waiting"] == 0


def test_two_apps_count_apart(engine: FakeEngine) -> None:
    one, other = client_of(engine), client_of(engine)
    one.post("/predict", json={"prompt": "p"})
    assert "fastinfer_runs_total{" in one.get("/metrics").text
    assert "fastinfer_runs_total{" not in other.get("/metrics").text
