"""The server as it is used: many clients at once, clients that leave, a process of its own."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.serve_options import ServeConfig
from scripts.served import Served, serving
from tests.browser.fake_engine import FakeEngine
from tests.http_server import running, wait_until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "The old man looked at the sea and"
OPTIONS = {"max_new_tokens": 20, "temperature": 0.8, "rule": "coupled"}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32")


def events_of(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_generate_and_predict_say_what_the_engine_says(engine: Engine) -> None:
    asked = {**OPTIONS, "seed": 5, "method": "cascade"}
    run = engine.generate(PROMPT, DecodeConfig.from_mapping(asked))
    with running(build_api(lambda: engine, ServeConfig(), Line(4))) as url:
        body = {"prompt": PROMPT, **asked}
        predicted = httpx.post(f"{url}/predict", json=body, timeout=60).json()
        with httpx.stream("POST", f"{url}/generate", json=body, timeout=60) as response:
            events = list(events_of(response))
    steps = [event for event in events if event["type"] == "step"]
    tokens = [token for step in steps for token in step["tokens"]]
    assert [token["id"] for token in tokens] == list(run.token_ids)
    assert "".join(token["text"] for token in tokens) == run.text
    assert events[-1]["text"] == predicted["text"] == run.text
    assert events[0]["options"] == predicted["options"]


SEEDS = range(100)
SHORT = {**OPTIONS, "max_new_tokens": 8}


@pytest.fixture(scope="module")
def texts(engine: Engine) -> list[str]:
    """What the engine alone says for each seed."""
    configs = (DecodeConfig.from_mapping({**SHORT, "seed": seed}) for seed in SEEDS)
    made = [engine.generate(PROMPT, config).text for config in configs]
    assert len(set(made)) > 80
    return made


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bound", [200, 9])
def test_a_hundred_at_once_are_each_whole_and_their_own(
    engine: Engine, texts: list[str], bound: int
) -> None:
    """Past the bound there is 429 and nothing else; each text is that of its own seed."""

    async def ask_all(url: str) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=500) as client:
            asked = (
                client.post("/predict", json={"prompt": PROMPT, **SHORT, "seed": seed})
                for seed in SEEDS
            )
            return await asyncio.gather(*asked)

    line = Line(bound)
    with running(build_api(lambda: engine, ServeConfig(), line)) as url:
        answers = asyncio.run(ask_all(url))
    served = 0
    for text, answer in zip(texts, answers, strict=True):
        if answer.status_code == 200:
            assert answer.json()["text"] == text
            served += 1
        else:
            assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
    assert served == 100 if bound >= 100 else bound < served < 100
    assert (line.num_running, line.num_waiting) == (0, 0)


class Gated(FakeEngine):
    """Makes a round only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)

    def _wait(self) -> None:
        assert self.gate.acquire(timeout=60)

    def let(self, rounds: int) -> None:
        for _ in range(rounds):
            self.gate.release()


def leaving_a_stream(url: str, path: str, body: dict[str, Any], engine: Gated) -> None:
    engine.let(3)
    with httpx.stream("POST", f"{url}{path}", json=body, timeout=60) as response:
        lines = response.iter_lines()
        while len(engine.steps) < 3:
            next(lines)


def leaving_before_the_answer(url: str, path: str, body: dict[str, Any], engine: Gated) -> None:
    engine.let(3)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}{path}", json=body, timeout=httpx.Timeout(60, read=1.0))
    assert len(engine.steps) == 3


@pytest.mark.parametrize(
    ("leave", "path", "more"),
    [
        (leaving_a_stream, "/generate", {}),
        (leaving_a_stream, "/v1/completions", {"stream": True, "max_tokens": 500}),
        (leaving_before_the_answer, "/predict", {}),
        (leaving_before_the_answer, "/v1/completions", {"max_tokens": 500}),
    ],
)
def test_a_client_that_leaves_frees_the_turn_within_a_round(
    leave: Callable[..., None], path: str, more: dict[str, Any]
) -> None:
    engine, line = Gated(), Line(4)
    with running(build_api(lambda: engine, ServeConfig(), line)) as url:
        leave(url, path, {"prompt": "p", **more}, engine)
        time.sleep(1.0)  # the word that the client has gone reaches the server, in a round's midst
        engine.let(1)
        wait_until(lambda: line.num_running == 0, "the turn was not freed")
        assert len(engine.steps) == 4 and engine.open_streams == 0
        engine.let(500)
        got = httpx.post(f"{url}/predict", json={"prompt": "p", "max_new_tokens": 4}, timeout=60)
        assert got.status_code == 200
        counted = httpx.get(f"{url}/metrics").text
    assert 'fastinfer_runs_total{method="speculative",reason="cancelled"} 1.0' in counted


def test_a_client_that_leaves_the_line_is_passed_over() -> None:
    engine, line = Gated(), Line(4)
    holder = line.join()
    with running(build_api(lambda: engine, ServeConfig(), line)) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{url}/predict", json={"prompt": "p"}, timeout=httpx.Timeout(60, read=0.5))
        wait_until(lambda: line.num_waiting == 0, "the place was not given up")
        holder.leave()
    assert engine.requests == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_that_hang_up_leave_nothing_behind(engine: Engine) -> None:
    line = Line(300)

    async def hang_up(client: httpx.AsyncClient) -> None:
        body = {"prompt": PROMPT, "max_new_tokens": 400, "temperature": 0.8}
        async with client.stream("POST", "/generate", json=body) as response:
            assert response.status_code == 200
            await anext(response.aiter_lines())

    async def all_hang_up(url: str) -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=500) as client:
            await asyncio.gather(*(hang_up(client) for _ in range(200)))

    with running(build_api(lambda: engine, ServeConfig(), line)) as url:
        asyncio.run(all_hang_up(url))
        wait_until(lambda: (line.num_running, line.num_waiting) == (0, 0), "turns are still held")
        body = {"prompt": PROMPT, "max_new_tokens": 4}
        assert httpx.post(f"{url}/predict", json=body, timeout=60).status_code == 200


def test_a_body_of_many_megabytes_is_refused_over_the_wire(engine: Engine) -> None:
    with running(build_api(lambda: engine, ServeConfig(), Line(4))) as url:
        response = httpx.post(f"{url}/predict", json={"prompt": "x" * 20_000_000}, timeout=60)
        assert response.status_code == 413


# --- the process --------------------------------------------------------------------------------


def test_serve_answers_and_ends_on_a_signal() -> None:
    with serving(FASTINFER_API_KEY="k") as served:
        made, url = served.process, served.url
        assert httpx.get(f"{url}/health").json()["preset"] == "nano"
        body = {"prompt": PROMPT, "max_new_tokens": 4, "ignore_eos": True}
        assert httpx.post(f"{url}/predict", json=body).status_code == 401
        headers = {"Authorization": "Bearer k"}
        got = httpx.post(f"{url}/predict", json=body, headers=headers, timeout=60)
        assert got.status_code == 200 and got.json()["stats"]["tokens"] == 4
        made.send_signal(signal.SIGINT)
        assert made.wait(timeout=30) == 130
        assert made.stderr is not None and "Traceback" not in made.stderr.read()


@pytest.fixture(scope="module")
def process() -> Iterator[Served]:
    """`serve` on a free port, and its address: one for all who leave it running."""
    with serving(FASTINFER_API_KEY="k") as served:
        yield served


def test_an_idle_connection_is_there_when_its_client_comes_back(process: Served) -> None:
    """Clients keep one for 5 s: a server that closes it at 5 s loses what they send then."""
    connection = http.client.HTTPConnection(urlsplit(process.url).netloc, timeout=30)
    for wait_s in (0, 6):
        time.sleep(wait_s)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read()
    connection.close()


def test_serve_answers_openais_client(process: Served) -> None:
    asked = {"model": "nano", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    with openai.OpenAI(base_url=f"{process.url}/v1", api_key="k", max_retries=0) as client:
        whole = client.completions.create(**asked)  # type: ignore[call-overload]
        chunks = list(client.completions.create(**asked, stream=True))  # type: ignore[call-overload]
        messages = [{"role": "user", "content": "hi"}]
        for stream in (False, True):  # nano is no chat model
            with pytest.raises(openai.BadRequestError, match="chat template"):
                client.chat.completions.create(model="nano", messages=messages, stream=stream)  # type: ignore[call-overload]
    assert len(chunks) > 3 and whole.usage.completion_tokens == 12
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_serve_answers_a_prompt_alone_by_curl(process: Served) -> None:
    done = subprocess.run(
        [
            "curl", "-s", "-S", "--fail", f"{process.url}/predict",
            "-H", "Content-Type: application/json", "-H", "Authorization: Bearer k",
            "-d", json.dumps({"prompt": PROMPT}),
        ],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["text"] and answer["finish_reason"] in ("length", "eos")
    ended = answer["finish_reason"] == "eos"  # nothing forbids the model to end its text
    assert ended or answer["stats"]["tokens"] == DecodeConfig().max_new_tokens


def test_the_api_does_without_gradio() -> None:
    script = (
        "import sys; from fastinfer.http.process import serve; "
        "print(*{'gradio', 'plotly', 'datasets'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_a_taken_port_is_one_sentence() -> None:
    with running(build_api(FakeEngine, ServeConfig(), Line(1))) as url:
        done = subprocess.run(
            [sys.executable, "-m", "fastinfer", "serve", "--port", url.rpartition(":")[2]],
            cwd=ROOT, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("error: port: ") and done.stderr.count("\n") == 1
