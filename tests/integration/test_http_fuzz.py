"""Requests made up from the API's own description, against nano: none breaks the server.

FASTINFER_FUZZ_CASES sets how many are tried on each route (25 where it is not set).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fastinfer.engine import load
from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.serve_options import ServeConfig

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CASES = int(os.environ.get("FASTINFER_FUZZ_CASES", "25"))
CHECKS = (
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance,
)  # fmt: skip

ROUTES = (
    ("GET", "/health"),
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("POST", "/predict"),
    ("POST", "/generate"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
)


def joined(messages: Sequence[Mapping[str, str]]) -> str:
    """A chat template of the simplest kind: nano has none, and chats should be decoded too."""
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


@pytest.fixture(scope="module")
def schema() -> Any:
    # Few tokens: what is tried is the reading of requests, and every option once it is read.
    engine = load("nano", dtype="float32")
    engine.chat_prompt = joined  # type: ignore[method-assign, assignment]
    app = build_api(lambda: engine, ServeConfig(max_new_tokens=12), Line(2))
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def test_every_route_is_tried(schema: Any) -> None:
    found = {(r.ok().method.upper(), r.ok().path) for r in schema.get_all_operations()}
    assert found == set(ROUTES)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_request_breaks_the_server(schema: Any, method: str, path: str) -> None:
    operation = schema[path][method]
    posts = method == "POST"
    modes = (
        (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) if posts else (GenerationMode.POSITIVE,)
    )
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))

    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize="FASTINFER_FUZZ_CASES" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def holds(case: Case) -> None:
        case.call_and_validate(checks=list(CHECKS))

    holds()
