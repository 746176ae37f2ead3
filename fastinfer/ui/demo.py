"""build_demo(engine, backstage): the tabs and nothing else."""

from __future__ import annotations

import os

import gradio as gr

from fastinfer.ui.backstage import Backstage
from fastinfer.ui.benchmark_tab import benchmark_tab
from fastinfer.ui.compare_tab import compare_tab
from fastinfer.ui.generate_tab import generate_tab
from fastinfer.ui.models_tab import models_tab
from fastinfer.ui.proof_tab import proof_tab
from fastinfer.ui.public_api import public_api
from fastinfer.ui.quality_tab import quality_tab
from fastinfer.ui.run import TextEngine

INTRO = """# fastinfer
Small models guess ahead, a larger one checks, and the text keeps the larger one's law."""


def build_demo(engine: TextEngine, backstage: Backstage | None = None) -> gr.Blocks:
    """The page. Mount it with `theme.page_settings()`. Without a backstage it only generates."""
    # Gradio reports usage by default; here only where the user switched that on.
    analytics = os.environ.get("GRADIO_ANALYTICS_ENABLED") == "True"
    demo = gr.Blocks(title="fastinfer", analytics_enabled=analytics, fill_width=True)
    with demo:
        public_api(engine)  # first: the name that it asks for is the name of private handlers too
        gr.Markdown(INTRO, elem_classes="fi-intro")
        with gr.Tab("Generate", id="generate"):
            generate_tab(engine)
        if backstage is not None:
            _measuring_tabs(engine, backstage)
    demo.queue(max_size=32)
    return demo


def _measuring_tabs(engine: TextEngine, backstage: Backstage) -> None:
    with gr.Tab("Compare", id="compare"):
        compare_tab(engine, backstage)
    with gr.Tab("Prove it", id="proof"):
        proof_tab(engine, backstage)
    with gr.Tab("Quality", id="quality"):
        quality_tab(backstage)
    with gr.Tab("Benchmark", id="benchmark"):
        benchmark_tab(engine, backstage)
    with gr.Tab("Models", id="models") as models:
        models_tab(backstage, models)
