"""What the HTTP API refuses, and how it says so; the key."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from fastinfer.config import ConfigError
from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.serve_options import ServeConfig
from tests.browser.fake_engine import FakeEngine
from tests.http_routes import BODIES, POSTS, client_of, error_of


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
