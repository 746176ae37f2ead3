"""Our own routes: /predict, /generate, /health and /metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

import fastinfer
from fastinfer.events import Event, Step, Token, to_json
from fastinfer.http.errors import Json, plain_shape, route_class
from fastinfer.http.metrics import CONTENT_TYPE
from fastinfer.http.requests import Ask, plain_ask
from fastinfer.http.runner import ServedEngine
from fastinfer.http.schemas import GENERATE, HEALTH, METRICS, PREDICT
from fastinfer.http.service import Service
from fastinfer.metrics import RunStats


def plain_router(service: Service) -> APIRouter:
    """The routes, bound to one service. All but /health ask for the key, where there is one."""
    router = APIRouter(route_class=route_class(service.metrics.count_request))
    guarded = [Depends(service.require_key)]

    async def asked(request: Request) -> tuple[ServedEngine, Ask]:
        body = await service.body(request)
        engine = service.engine()
        return engine, plain_ask(body, service.config.max_new_tokens, engine.info.drafting)

    @router.get("/health", openapi_extra=HEALTH)
    async def health() -> Response:
        """Say that the engine is loaded, and which."""
        info = service.engine().info
        return Json(
            {
                "status": "ok",
                "version": fastinfer.__version__,
                "preset": info.preset,
                "models": {role.value: name for role, name in info.models.items()},
                "device": info.device,
                "dtype": info.dtype,
            }
        )

    @router.get("/metrics", dependencies=guarded, openapi_extra=METRICS)
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    @router.post("/predict", dependencies=guarded, openapi_extra=PREDICT)
    async def predict(request: Request) -> Response:
        """Continue a prompt: the text and the run's figures, at once."""
        engine, ask = await asked(request)
        prediction = Prediction()
        await service.whole(request, engine, ask, prediction.add)
        return Json(prediction.to_mapping())

    @router.post("/generate", dependencies=guarded, openapi_extra=GENERATE)
    async def generate(request: Request) -> Response:
        """Continue a prompt: the engine's events as they come, each a server-sent event of JSON."""
        engine, ask = await asked(request)
        return await service.stream(request, engine, ask, _as_json, plain_shape)

    return router


def _as_json(event: Event) -> list[dict[str, Any]]:
    return [to_json(event)]


class Prediction:
    """The answer of /predict: a fold of the run's events."""

    def __init__(self) -> None:
        self._stats = RunStats()
        self._tokens: list[Token] = []

    def add(self, event: Event) -> None:
        """Take in one event."""
        self._stats.add(event)
        if isinstance(event, Step):
            self._tokens += event.tokens

    def to_mapping(self) -> dict[str, Any]:
        """The answer, JSON-ready."""
        started, finished = self._stats.started, self._stats.finished
        assert started is not None and finished is not None, "a whole run"
        return {
            "text": finished.text,
            "finish_reason": finished.reason,
            "seed": started.seed,
            "stats": self._stats.to_mapping(),
            "tokens": [dataclasses.asdict(token) for token in self._tokens],
            "options": started.options,
        }
