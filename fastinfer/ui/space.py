"""What a Hugging Face Space needs: a GPU asked for by the call, and a launch of Gradio's own.

On ZeroGPU only functions under `spaces.GPU` have a GPU: each runs in a forked process, its
arguments and every value that it yields cross by pickle. Ours are plain generators of strings. The
package `spaces` is there on a Space only; elsewhere nothing here has an effect.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any, TypeVar

import gradio as gr

Run = TypeVar("Run", bound=Callable[..., Any])
Duration = Callable[..., int]  # the call's own arguments -> seconds

# A visitor's quota is checked against what is asked for, so that a guess too high refuses them.
START_SECONDS = 10  # models to the device, the first pass of each kernel, warm-up
TOKEN_SECONDS = 0.05
LONGEST_SECONDS = 120


def on_zero_gpu() -> bool:
    """Whether this is a Space whose GPU must be asked for."""
    asked = bool(os.environ.get("SPACES_ZERO_GPU"))
    return asked and importlib.util.find_spec("spaces") is not None


def on_space() -> bool:
    """Whether this is a Space, so that visitors' browsers run on other machines."""
    return bool(os.environ.get("SPACE_ID"))


def seconds_for(num_tokens: Any, runs: int = 1) -> int:
    """How long a GPU is asked for, for so many runs of so many tokens. Anything else is one run
    of none: the form's own check refuses it with words."""
    number = isinstance(num_tokens, (int, float)) and not isinstance(num_tokens, bool)
    tokens = max(0.0, num_tokens) if number and num_tokens == num_tokens else 0.0
    return int(min(LONGEST_SECONDS, START_SECONDS + TOKEN_SECONDS * tokens * runs))


def gpu(run: Run, duration: Duration) -> Run:
    """The function itself; on ZeroGPU one that holds a GPU while it runs."""
    if not on_zero_gpu():
        return run
    spaces = importlib.import_module("spaces")
    decorated: Run = spaces.GPU(duration=duration)(run)
    return decorated


def launch(demo: gr.Blocks, settings: dict[str, Any]) -> None:
    """Serve the page as ZeroGPU wants it, by `Blocks.launch`, which is where it starts up.

    The HTTP API has no place there: its routes would have no GPU.
    """
    demo.launch(**settings)
