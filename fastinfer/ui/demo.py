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
from fastinfer.ui.roles import RoleField, follow
from fastinfer.ui.run import TextEngine
from fastinfer.ui.words import word

# Gradio's queue looks for work each millisecond and for progress each ten, save on Windows. Each
# look takes the interpreter away from the engine's thread: together some 10% of a token's time.
QUEUE_POLL_S = 0.02
PROGRESS_POLL_S = 0.1


def build_demo(engine: TextEngine, backstage: Backstage | None = None) -> gr.Blocks:
    """The page. Mount it with `theme.page_settings()`. Without a backstage it only generates."""
    # Gradio reports usage by default; here only where the user switched that on.
    analytics = os.environ.get("GRADIO_ANALYTICS_ENABLED") == "True"
    demo = gr.Blocks(title="fastinfer", analytics_enabled=analytics, fill_width=True)
    with demo:
        public_api(engine)  # first: the name that it asks for is the name of private handlers too
        with gr.Row(elem_classes="fi-intro"):
            gr.Markdown("# fastinfer")
            gr.Markdown(word("group_intro"))
        with gr.Tab(word("group_tab_generate"), id="generate"):
            following = generate_tab(engine)
        if backstage is not None:
            following += _measuring_tabs(engine, backstage, following)
        # The page may have been built for other models than those that are loaded by now.
        follow(demo.load, engine, following)
    demo.queue(max_size=32)
    _poll_less(demo)
    return demo


def _poll_less(demo: gr.Blocks) -> None:
    queue = demo._queue  # there is no public way
    queue.sleep_when_free, queue.progress_update_sleep_when_free = QUEUE_POLL_S, PROGRESS_POLL_S


def _measuring_tabs(
    engine: TextEngine, backstage: Backstage, following: tuple[RoleField, ...]
) -> tuple[RoleField, ...]:
    """Build them; gives their fields that depend on the models."""
    with gr.Tab(word("group_tab_compare"), id="compare"):
        own = compare_tab(engine, backstage)
    with gr.Tab(word("group_tab_proof"), id="proof"):
        own += proof_tab(engine, backstage)
    with gr.Tab(word("group_tab_quality"), id="quality"):
        quality_tab(backstage)
    with gr.Tab(word("group_tab_benchmark"), id="benchmark"):
        own += benchmark_tab(engine, backstage)
    with gr.Tab(word("group_tab_models"), id="models") as models:
        models_tab(engine, backstage, models, following + own)
    return own
