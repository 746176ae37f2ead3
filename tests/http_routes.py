"""What tests of the HTTP API share: the routes, a client, and what they read off an answer."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.serve_options import ServeConfig
from tests.browser.fake_engine import FakeEngine

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
