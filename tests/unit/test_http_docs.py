"""docs/http.md is true of the code: its commands are answered, its tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient

from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.http.schemas import REFUSALS
from fastinfer.serve_options import ServeConfig
from tests.browser.fake_engine import FakeEngine

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "http.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CURLS = [block for block in BLOCKS if block.startswith("curl")]


@pytest.fixture(scope="module")
def client() -> TestClient:
    config = ServeConfig(api_key="change-me")
    return TestClient(build_api(FakeEngine, config, Line(config.max_waiting)))


@pytest.mark.parametrize("command", CURLS)
def test_every_curl_is_answered(client: TestClient, command: str) -> None:
    words = shlex.split(command.replace("\\\n", " "))
    address = next(word for word in words if word.startswith("http://127.0.0.1:5000/"))
    headers = dict(words[i + 1].split(": ") for i, word in enumerate(words) if word == "-H")
    headers["Authorization"] = "Bearer change-me"
    data = words[words.index("-d") + 1] if "-d" in words else None
    method = "GET" if data is None else "POST"
    response = client.request(method, urlsplit(address).path, content=data, headers=headers)
    assert response.status_code == 200, response.text


def test_there_are_commands_of_each_kind() -> None:
    for path in ("/predict", "/generate", "/v1/completions", "/v1/models"):
        assert any(path in command for command in CURLS), path


def test_the_tables_name_every_route_and_every_status(client: TestClient) -> None:
    described = client.get("/openapi.json").json()["paths"]
    routes = {f"{verb.upper()} {path}" for path, verbs in described.items() for verb in verbs}
    assert routes <= set(re.findall(r"^\| `((?:GET|POST) [^`]+)` \|", PAGE, re.MULTILINE))
    told = set(map(int, re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE)))
    assert told == {*REFUSALS, 404}
