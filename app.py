"""The whole app: one engine, the HTTP routes and the page on one FastAPI app. `python app.py`."""

from __future__ import annotations

import argparse
import os

import gradio as gr
import uvicorn
from fastapi import FastAPI

from fastinfer.config import ConfigError
from fastinfer.engine import Engine, load
from fastinfer.models.catalog import PRESETS
from fastinfer.server import api_router
from fastinfer.ui.demo import build_demo
from fastinfer.ui.theme import page_settings


def build_app(engine: Engine) -> FastAPI:
    """Routes first: the page answers every other address."""
    app = FastAPI(title="fastinfer", docs_url=None, redoc_url=None)  # those pages ask a CDN
    app.include_router(api_router(engine))
    return gr.mount_gradio_app(app, build_demo(engine), path="/", **page_settings())


def main() -> None:
    """Parse arguments, load the engine, serve."""
    parser = argparse.ArgumentParser(description="Serve the fastinfer page and its HTTP routes.")
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    port = os.environ.get("GRADIO_SERVER_PORT", "7860")
    parser.add_argument("--port", type=int, default=port)
    parser.add_argument("--preset", default="nano", help=f"one of {', '.join(PRESETS)}")
    args = parser.parse_args()
    try:
        app = build_app(load(args.preset))
    except ConfigError as error:
        parser.exit(2, f"app.py: {error}\n")
    print(f"fastinfer is ready: http://{args.host}:{args.port}", flush=True)
    uvicorn.run(
        app, host=args.host, port=args.port, log_level="warning", timeout_graceful_shutdown=1
    )


if __name__ == "__main__":
    main()
