"""An engine that breaks, and the limits that protect one."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator

import pytest

from fastinfer.config import DecodeConfig
from fastinfer.events import Event, Step
from fastinfer.http.line import Line
from tests.browser.fake_engine import TRAPS, FakeEngine
from tests.http_routes import BODIES, POSTS, client_of, error_of, sent_events


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
