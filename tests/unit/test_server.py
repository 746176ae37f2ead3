"""GET /health, alone and beside the page."""

from __future__ import annotations

import fastapi
from fastapi.testclient import TestClient
from fastinfer.server import api_router

import fastinfer
from tests.browser.fake_engine import FakeEngine


def test_health_names_what_is_loaded() -> None:
    app = fastapi.FastAPI()
    app.include_router(api_router(FakeEngine()))  # type: ignore[arg-type]
    response = TestClient(app).get("/health")
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
