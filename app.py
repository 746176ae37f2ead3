"""The whole app: one engine, the HTTP API and the page on one FastAPI app. `python app.py`."""

from __future__ import annotations

import argparse
import os
import sys

import gradio as gr
import uvicorn
from fastapi import FastAPI

from fastinfer.config import ConfigError
from fastinfer.engine import Engine, load
from fastinfer.http.app import build_api
from fastinfer.http.line import InLine, Line
from fastinfer.http.process import KEEP_ALIVE_SECONDS, SHUTDOWN_SECONDS, SWITCH_SECONDS
from fastinfer.models.catalog import PRESETS
from fastinfer.serve_options import ServeConfig, add_limits, read_port, serve_config
from fastinfer.shelf import CurrentEngine, EngineShelf
from fastinfer.ui import space
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.demo import build_demo
from fastinfer.ui.theme import page_settings


def build_page(shelf: EngineShelf, line: Line) -> gr.Blocks:
    """Every tab, on the engine that is on the shelf, each run in its turn."""
    engine = InLine(CurrentEngine(shelf), line)
    return build_demo(engine, Backstage(shelf=shelf, line=line))


def build_app(engine: Engine, config: ServeConfig | None = None) -> FastAPI:
    """Routes first: the page answers every other address. Both take turns in one line."""
    config = config or ServeConfig()
    line, shelf = Line(config.max_waiting), EngineShelf(engine)
    app = build_api(lambda: shelf.engine, config, line)
    return gr.mount_gradio_app(app, build_page(shelf, line), path="/", **page_settings())


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
        engine = load(args.preset)
    except ConfigError as error:
        parser.exit(2, f"app.py: {error}\n")
    if space.on_zero_gpu():
        space.launch(build_page(EngineShelf(engine), Line(config.max_waiting)), page_settings())
        return
    app = build_app(engine, config)
    sys.setswitchinterval(SWITCH_SECONDS)
    print(f"fastinfer is ready: http://{args.host}:{port}", flush=True)
    uvicorn.run(
        app, host=args.host, port=port, log_level="warning",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS, timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )  # fmt: skip


if __name__ == "__main__":
    main()
