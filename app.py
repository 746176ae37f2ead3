"""The whole app: one engine, the HTTP API and the page on one FastAPI app. `python app.py`."""

from __future__ import annotations

import argparse
import os

import gradio as gr
import uvicorn
from fastapi import FastAPI

from fastinfer.config import ConfigError
from fastinfer.engine import Engine, load
from fastinfer.http.app import build_api
from fastinfer.http.line import InLine, Line
from fastinfer.models.catalog import PRESETS
from fastinfer.serve_options import ServeConfig, add_limits, read_port, serve_config
from fastinfer.ui.demo import build_demo
from fastinfer.ui.theme import page_settings


def build_app(engine: Engine, config: ServeConfig | None = None) -> FastAPI:
    """Routes first: the page answers every other address. Both take turns in one line."""
    config = config or ServeConfig()
    line = Line(config.max_waiting)
    app = build_api(lambda: engine, config, line)
    return gr.mount_gradio_app(app, build_demo(InLine(engine, line)), path="/", **page_settings())


def main() -> None:
    """Parse arguments, load the engine, serve."""
    parser = argparse.ArgumentParser(description="Serve the fastinfer page and its HTTP API.")
    parser.add_argument("--host", default=os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"))
    parser.add_argument("--port", default=os.environ.get("GRADIO_SERVER_PORT", "7860"))
    parser.add_argument("--preset", default="nano", help=f"one of {', '.join(PRESETS)}")
    add_limits(parser)
    args = parser.parse_args()
    try:
        port = read_port(args.port)
        config = serve_config(args, os.environ)
        app = build_app(load(args.preset), config)
    except ConfigError as error:
        parser.exit(2, f"app.py: {error}\n")
    print(f"fastinfer is ready: http://{args.host}:{port}", flush=True)
    uvicorn.run(app, host=args.host, port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
