"""build_api(current, config, line): every route on one app, for `serve` and the page."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

import fastinfer
from fastinfer.http.errors import http_exception
from fastinfer.http.line import Line
from fastinfer.http.metrics import Metrics
from fastinfer.http.openai_routes import openai_router
from fastinfer.http.plain_routes import plain_router
from fastinfer.http.runner import Runner, ServedEngine
from fastinfer.http.service import Service
from fastinfer.serve_options import ServeConfig


def build_api(current: Callable[[], ServedEngine], config: ServeConfig, line: Line) -> FastAPI:
    """The app. `current` gives the engine in use, or raises `ConfigError` while there is none.

    Whoever else decodes on the same machine takes turns in the same `line`.
    """
    app = FastAPI(
        title="fastinfer",
        version=fastinfer.__version__,
        docs_url=None,  # those pages ask a CDN
        redoc_url=None,
    )
    metrics = Metrics(line)
    runner = Runner(line, metrics, config.max_seconds)
    service = Service(current=current, runner=runner, config=config, metrics=metrics)
    app.include_router(plain_router(service))
    app.include_router(openai_router(service))
    app.add_exception_handler(HTTPException, http_exception)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app
