"""Every route on a fake engine: answers, refusals in each API's shape, the key, the figures."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

import fastinfer
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.events import Event, Role, Step
from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.serve_options import ServeConfig
from tests.browser.fake_engine import FAKE_SEED, TRAPS, FakeEngine, origins_of

POSTS = ("/predict", "/generate", "/v1/completions", "/v1/chat/completions")
BODIES: dict[str, dict[str, Any]] = {
    "/predict": {"prompt": "p"},
    "/generate": {"prompt": "p"},
    "/v1/completions": {"prompt": "p"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "p"}], "max_tokens": 5},
}


def client_of(engine: FakeEngine, line: Line | None = None, **options: Any) -> TestClient:
    config = ServeConfig(**options)
    return TestClient(build_api(lambda: engine, config, line or Line(config.max_waiting)))


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def client(engine: FakeEngine) -> Iterator[TestClient]:
    yield client_of(engine)
    assert engine.open_streams == 0


def sent_events(text: str) -> list[str]:
    assert text.endswith("\n\n")
    return [line.removeprefix("data: ") for line in text.split("\n\n") if line]


def error_of(path: str, response: Any) -> dict[str, Any]:
    """The error, after a look at its shape."""
    error = response.json()["error"]
    if path.startswith("/v1/"):
        assert set(error) == {"message", "type", "param", "code"}
    else:
        assert set(error) <= {"message", "field"}
    return dict(error)


# --- answers ------------------------------------------------------------------------------------


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


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", POSTS)
def test_a_bad_value_names_its_field(client: TestClient, path: str) -> None:
    response = client.post(path, json={**BODIES[path], "temperature": -1})
    error = error_of(path, response)
    assert response.status_code == 422
    assert error.get("field", error.get("param")) == "temperature"
    assert "from 0 to 100" in error["message"]


BAD_BODIES = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b'"x"', 400),
    (b"null", 400),
    (b'{"prompt": NaN}', 400),
    (b'{"prompt": "\xff"}', 400),
    (b'{"prompt": "\\ud800"}', 400),
    (b'{"\\udfff": 1}', 400),
    (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", 400),
    (b'{"prompt": ' + b"9" * 5000 + b"}", 400),
    (b'{"prompt": "x", "messages": [{"role": "user", "content": "x"}], "seed": 1e999}', 422),
    (b'{"prompt": "x", "messages": [{"role": "user", "content": "x"}], "top_k": 1.5}', 422),
]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize(("body", "status"), BAD_BODIES)
def test_a_bad_body_is_refused_and_never_breaks(
    client: TestClient, path: str, body: bytes, status: int
) -> None:
    response = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == status
    assert error_of(path, response)["message"]


@pytest.mark.parametrize("path", POSTS)
def test_a_nesting_that_parses_does_not_break_either(client: TestClient, path: str) -> None:
    for depth in (100, 300, 900):
        body = b'{"prompt": ' + b"[" * depth + b"]" * depth + b', "messages": 1}'
        response = client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in (400, 422)


@pytest.mark.parametrize("path", POSTS)
def test_a_long_body_is_refused_whether_or_not_it_says_so(engine: FakeEngine, path: str) -> None:
    client = client_of(engine, max_body_bytes=1000)
    body = json.dumps({"prompt": "x" * 1000, "messages": []}).encode()
    headers = {"Content-Type": "application/json"}

    def pieces() -> Iterator[bytes]:
        yield body[:600]
        yield body[600:]

    for content in (body, pieces()):
        response = client.post(path, content=content, headers=headers)
        assert response.status_code == 413
        assert "1000 bytes" in error_of(path, response)["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_must_say_that_it_is_json(client: TestClient, kind: str) -> None:
    response = client.post("/predict", content=b'{"prompt": "x"}', headers={"Content-Type": kind})
    assert response.status_code == 415


def test_an_error_that_quotes_a_long_text_stays_short(client: TestClient) -> None:
    response = client.post("/predict", json={"prompt": "p", "method": "m" * 100_000})
    assert response.status_code == 422 and len(response.content) < 2000


def test_unknown_addresses_and_methods_answer_in_shape(client: TestClient) -> None:
    for path, status in (("/v1/nothing", 404), ("/v1/completions", 405), ("/predict", 405)):
        response = client.get(path)
        assert response.status_code == status
        error_of(path, response)


def test_an_error_of_the_chat_template_is_400(engine: FakeEngine) -> None:
    def refuse(messages: object) -> str:
        raise ConfigError("messages", "this model continues texts; use /v1/completions")

    engine.chat_prompt = refuse  # type: ignore[method-assign, assignment]
    path = "/v1/chat/completions"
    response = client_of(engine).post(path, json=BODIES[path])
    assert response.status_code == 400
    error = error_of(path, response)
    assert error["param"] == "messages" and "continues texts" in error["message"]


def test_while_there_is_no_engine_every_route_says_so() -> None:
    def loading() -> FakeEngine:
        raise ConfigError("preset", "no model is in memory just now; try again in a moment")

    client = TestClient(build_api(loading, ServeConfig(), Line(1)))
    for path in (*POSTS, "/health", "/v1/models"):
        get = path not in POSTS
        response = client.get(path) if get else client.post(path, json=BODIES[path])
        assert response.status_code == 503 and response.headers["retry-after"]
        assert "no model is in memory" in error_of(path, response)["message"]


def test_a_request_keeps_the_engine_that_it_began_with() -> None:
    old, new = FakeEngine(("old",)), FakeEngine(("new",))
    engines = iter([old, new, new])
    path = "/v1/chat/completions"
    client = TestClient(build_api(lambda: next(engines), ServeConfig(), Line(1)))
    for word in ("old", "new"):
        got = client.post(path, json={**BODIES[path], "max_tokens": 1}).json()
        assert got["choices"][0]["message"]["content"] == word


# --- a broken engine ----------------------------------------------------------------------------


class Bug(FakeEngine):
    """Breaks in a way that nobody foresaw."""

    bug_at: int | None = 0

    def _events(self, start: int, config: DecodeConfig) -> Generator[Event, None, None]:
        for event in super()._events(start, config):
            if isinstance(event, Step) and event.index == self.bug_at:
                raise KeyError("secret/path/of/this/machine")
            yield event


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("kind", [FakeEngine, Bug])
def test_a_broken_engine_is_500_and_one_sentence(kind: type[FakeEngine], path: str) -> None:
    engine = kind()
    engine.fail_at = 0 if kind is FakeEngine else None
    response = client_of(engine).post(path, json=BODIES[path])
    assert response.status_code == 500
    message = error_of(path, response)["message"]
    assert "Traceback" not in response.text and "secret" not in response.text
    if kind is FakeEngine:
        assert message == "The model broke off: logits of the target are not finite"
    assert engine.open_streams == 0


@pytest.mark.parametrize("path", ["/generate", "/v1/completions", "/v1/chat/completions"])
def test_an_engine_that_breaks_in_mid_stream_says_so_in_the_stream(path: str) -> None:
    engine = Bug()
    engine.bug_at = 1
    client = client_of(engine)
    stream = {"stream": True} if "v1" in path else {}
    response = client.post(path, json={**BODIES[path], **stream})
    assert response.status_code == 200
    events = sent_events(response.text)
    broken = json.loads(events[-2] if "v1" in path else events[-1])
    assert "log says why" in broken["error"]["message"]
    assert "secret" not in response.text
    engine.bug_at = None  # and the next request is served
    assert client.post("/predict", json=BODIES["/predict"]).status_code == 200


# --- limits -------------------------------------------------------------------------------------


def test_a_request_behind_a_full_line_gets_429(engine: FakeEngine) -> None:
    line = Line(0)
    client = client_of(engine, line)
    holder = line.join()
    for path in POSTS:
        response = client.post(path, json=BODIES[path])
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        error_of(path, response)
    holder.leave()
    assert client.post("/predict", json=BODIES["/predict"]).status_code == 200


@pytest.mark.parametrize("path", POSTS)
def test_a_request_for_too_many_tokens_is_refused(engine: FakeEngine, path: str) -> None:
    client = client_of(engine, max_new_tokens=8)
    response = client.post(path, json={**BODIES[path], "max_tokens": 9})
    assert response.status_code == 422
    assert "at most 8" in error_of(path, response)["message"]


def test_a_run_beyond_its_time_is_cut_off(engine: FakeEngine) -> None:
    engine.pace_s = 0.02
    client = client_of(engine, max_seconds=0.05)
    got = client.post("/predict", json={"prompt": "p", "max_new_tokens": 2000}).json()
    assert got["finish_reason"] == "time"
    assert 0 < got["stats"]["tokens"] < 2000
    assert got["text"] == "".join(t["text"] for t in got["tokens"])
    body = {"prompt": "p", "max_tokens": 2000}
    whole = client.post("/v1/completions", json=body).json()
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["fastinfer"]["timings"]["finish_reason"] == "time"
    assert engine.open_streams == 0


def test_requests_at_once_are_served_one_after_another(engine: FakeEngine) -> None:
    engine.pace_s = 0.005
    client = client_of(engine)
    texts: list[str] = []

    def ask(count: int) -> None:
        got = client.post("/predict", json={"prompt": "p", "max_new_tokens": count})
        texts.append(got.json()["text"])

    threads = [threading.Thread(target=ask, args=(count,)) for count in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(texts) == sorted("".join(TRAPS[:count]) for count in range(1, 9))
    assert engine.most_streams == 1


# --- the key ------------------------------------------------------------------------------------


def test_with_a_key_everything_but_health_asks_for_it(engine: FakeEngine) -> None:
    client = client_of(engine, api_key="s3cret")
    assert client.get("/health").status_code == 200
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"},
                    {"Authorization": "Basic s3cret"}, {"Authorization": "Bearer s3cret2"},
                    {"Authorization": b"Bearer \xff\xfe"}):  # fmt: skip
        for path in (*POSTS, "/v1/models", "/metrics"):
            get = path not in POSTS
            response = (
                client.get(path, headers=headers)
                if get
                else client.post(path, json=BODIES[path], headers=headers)
            )
            assert response.status_code == 401, (path, headers)
            assert response.headers["www-authenticate"] == "Bearer"
            error_of(path, response)
    assert not engine.requests
    good = {"Authorization": "Bearer s3cret"}
    assert client.get("/metrics", headers=good).status_code == 200
    assert client.post("/predict", json={"prompt": "p"}, headers=good).status_code == 200


def test_pages_of_other_sites_are_let_in_only_where_asked_for(engine: FakeEngine) -> None:
    asked = {"Origin": "http://other.example", "Access-Control-Request-Method": "POST"}
    closed = client_of(engine).options("/predict", headers=asked)
    assert closed.status_code == 405
    assert "access-control-allow-origin" not in closed.headers
    opened = client_of(engine, cors_origins=("http://other.example",))
    response = opened.options("/predict", headers=asked)
    assert response.headers["access-control-allow-origin"] == "http://other.example"
    other = opened.options("/predict", headers={**asked, "Origin": "http://third.example"})
    assert "access-control-allow-origin" not in other.headers


# --- figures ------------------------------------------------------------------------------------


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
