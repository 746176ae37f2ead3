"""Our own routes: /predict, /generate, /health and /metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

import fastinfer
from fastinfer.events import Event, Finished, to_json
from fastinfer.http.errors import Json, plain_shape, route_class
from fastinfer.http.metrics import CONTENT_TYPE
from fastinfer.http.requests import plain_ask
from fastinfer.http.schemas import GENERATE, HEALTH, METRICS, PREDICT
from fastinfer.http.service import Service
from fastinfer.metrics import RunStats


def plain_router(service: Service) -> APIRouter:
    """The routes, bound to one service. All but /health ask for the key, where there is one."""
    router = APIRouter(route_class=route_class(service.metrics.count_request))
    guarded = [Depends(service.require_key)]

    @router.get("/health", openapi_extra=HEALTH)
    async def health() -> Response:
        """Say that the engine is loaded, and which."""
        info = service.runner.engine.info
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
        ask = plain_ask(await service.body(request), service.config.max_new_tokens)
        stats = RunStats()
        await service.whole(request, ask, stats.add)
        return Json(_prediction(stats))

    @router.post("/generate", dependencies=guarded, openapi_extra=GENERATE)
    async def generate(request: Request) -> Response:
        """Continue a prompt: the engine's events as they come, each a server-sent event of JSON."""
        ask = plain_ask(await service.body(request), service.config.max_new_tokens)
        return await service.stream(request, ask, _as_json, plain_shape)

    return router


def _as_json(event: Event) -> list[dict[str, Any]]:
    return [to_json(event)]


def _prediction(stats: RunStats) -> dict[str, Any]:
    assert stats.started is not None and isinstance(stats.finished, Finished), "a whole run"
    return {
        "text": stats.finished.text,
        "finish_reason": stats.finished.reason,
        "seed": stats.started.seed,
        "stats": stats.to_mapping(),
        "options": stats.started.options,
    }
