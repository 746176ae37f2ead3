"""A fake engine, and a client of the HTTP API over it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.browser.fake_engine import FakeEngine
from tests.http_routes import client_of


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def client(engine: FakeEngine) -> Iterator[TestClient]:
    yield client_of(engine)
    assert engine.open_streams == 0
