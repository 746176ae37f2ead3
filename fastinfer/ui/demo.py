"""build_demo(engine): the tabs and nothing else."""

from __future__ import annotations

import os

import gradio as gr

from fastinfer.ui.generate_tab import generate_tab
from fastinfer.ui.run import TextEngine

INTRO = """# fastinfer
Small models guess ahead, a larger one checks, and the text keeps the larger one's law."""


def build_demo(engine: TextEngine) -> gr.Blocks:
    """The page. Mount it with `theme.page_settings()`."""
    # Gradio reports usage by default; here only where the user switched that on.
    analytics = os.environ.get("GRADIO_ANALYTICS_ENABLED") == "True"
    demo = gr.Blocks(title="fastinfer", analytics_enabled=analytics, fill_width=True)
    with demo:
        gr.Markdown(INTRO, elem_classes="fi-intro")
        with gr.Tab("Generate", id="generate"):
            generate_tab(engine)
    demo.queue(max_size=32)
    return demo
