"""Models of known shapes with random weights, and a stopwatch, for `scripts.gpu_check`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig

from fastinfer.models.graphed_decoder import GraphedDecoder
from fastinfer.models.graphs import CudaCapture, Step
from fastinfer.models.transformer import TransformerDecoder, from_state_dict


def neox(hidden: int, layers: int, heads: int, vocab: int, context: int = 2048) -> Any:
    """A GPT-NeoX config as the Pythias have it: a quarter of each head is rotated."""
    return GPTNeoXConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=context,
        bos_token_id=0,
        eos_token_id=0,
    )


def grouped_llama(hidden: int) -> Any:
    """A small Llama with grouped queries: for parity, where Pythia has none."""
    return LlamaConfig(
        vocab_size=1024,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=2048,
    )


# By family: the first is the draft of the others.
SHAPES: dict[str, dict[str, Callable[[], Any]]] = {
    "pythia": {
        "70m": partial(neox, 512, 6, 8, 50304),
        "410m": partial(neox, 1024, 24, 16, 50304),
        "2.8b": partial(neox, 2560, 32, 32, 50304),
    },
    "tiny": {
        "draft": partial(neox, 32, 1, 2, 300, 512),
        "target": partial(neox, 64, 2, 4, 300, 512),
    },
}


@dataclass(frozen=True)
class Sizes:
    """How much of everything: enough to measure, or enough to run."""

    prompt: int
    new_tokens: int
    contexts: tuple[int, ...]
    blocks: tuple[int, ...]
    buckets: tuple[int, ...]
    copy_bytes: int
    repeats: int
    hidden: int  # of the Llama


SIZES = {
    "pythia": Sizes(
        prompt=128, new_tokens=96, contexts=(128, 1000, 2000), blocks=(1, 5, 17),
        buckets=(256, 512, 1024, 2048, 4096), copy_bytes=2**31, repeats=25, hidden=512,
    ),
    "tiny": Sizes(
        prompt=20, new_tokens=8, contexts=(20, 300), blocks=(1, 5), buckets=(256,),
        copy_bytes=2**20, repeats=3, hidden=64,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """The same weights three ways."""

    theirs: Any  # transformers
    eager: TransformerDecoder
    graphed: GraphedDecoder

    def step_bytes(self) -> int:
        """Weights that one step reads: all but the embedding, of which it reads a few rows."""
        embedding = self.theirs.get_input_embeddings().weight
        total: int = sum(p.nbytes for p in self.theirs.parameters()) - embedding.nbytes
        return total


class Lab:
    """A device, the models on it, and what to measure with."""

    def __init__(self, device: torch.device, family: str) -> None:
        self.device = device
        self.family = family
        self.sizes = SIZES[family]
        self.bytes_per_second = 0.0  # of a large copy; 0 until it is measured
        self._models: dict[str, Model] = {}

    @property
    def names(self) -> list[str]:
        """The shapes, small to large."""
        return list(SHAPES[self.family])

    def model(self, name: str) -> Model:
        """One of the shapes in bfloat16, made at its first use and kept."""
        if name not in self._models:
            self._models[name] = self.build(SHAPES[self.family][name](), torch.bfloat16)
        return self._models[name]

    def build(self, config: Any, dtype: torch.dtype) -> Model:
        """Random weights, made on the device."""
        torch.manual_seed(0)
        with torch.device(self.device):
            theirs: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
        theirs.eval()
        # No end of text stops it, and no filter of its own acts.
        theirs.generation_config = type(theirs.generation_config)(pad_token_id=0)
        eager = from_state_dict(config.to_dict(), theirs.state_dict(), dtype, self.device)
        return Model(theirs, eager, GraphedDecoder(eager, self.capture))

    def capture(self) -> Callable[[Step], Step]:
        """Graphs where there are any; elsewhere the step itself."""
        return CudaCapture(self.device) if self.device.type == "cuda" else lambda step: step

    def tokens(self, count: int, vocab: int) -> Tensor:
        """Random ids, the same every time."""
        generator = torch.Generator().manual_seed(1)
        return torch.randint(0, vocab, (count,), generator=generator).to(self.device)

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def median_ms(self, run: Callable[[], object], after: Callable[[], object] = int) -> float:
        """The usual time of `run`; `after` puts things back and is not timed."""
        times = []
        for repeat in range(self.sizes.repeats + 3):
            self.synchronize()
            begin = time.perf_counter()
            run()
            self.synchronize()
            elapsed = (time.perf_counter() - begin) * 1000.0
            after()
            if repeat >= 3:  # the first ones warm up
                times.append(elapsed)
        return statistics.median(times)
