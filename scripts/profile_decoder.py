"""Times one step of our decoder against transformers' bare forward, on random weights.

    python scripts/profile_decoder.py [--dtype bfloat16] [--context 128] [--trace nano-target]

Medians and quartiles of steps of 1 and 8 tokens, the two in turn, so that noise meets both alike.
`--trace SHAPE` prints where our one-token step spends its time instead.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GPTNeoXConfig, LlamaConfig

from fastinfer.models.base import Decoder
from fastinfer.models.hf_model import HFDecoder
from fastinfer.models.transformer import from_state_dict

BLOCKS = (1, 8)


def neox(hidden: int, layers: int) -> Any:
    """The shape of a bundled model."""
    return GPTNeoXConfig(
        vocab_size=4096,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        max_position_embeddings=2048,
    )


def smollm2() -> Any:
    """The shape of SmolLM2-135M."""
    return LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
    )


SHAPES: dict[str, Callable[[], Any]] = {
    "nano-target": lambda: neox(384, 8),
    "nano-intermediate": lambda: neox(256, 4),
    "nano-draft": lambda: neox(128, 2),
    "smollm2-135m": smollm2,
}


def stepper(decoder: Decoder, context: int, block: int) -> Callable[[], float]:
    """A function that runs one step at that context and returns its milliseconds."""
    ids = torch.randint(0, decoder.vocab_size, (context + block,), device=decoder.device)
    cache = decoder.new_cache()
    decoder.forward(ids[:context], cache, 1)

    def step() -> float:
        start = time.perf_counter()
        decoder.forward(ids[context:], cache, block)
        if decoder.device.type == "cuda":
            torch.cuda.synchronize()
        elapsed = time.perf_counter() - start
        cache.rollback(context)
        return elapsed * 1000

    return step


def compare(name: str, options: argparse.Namespace, dtype: torch.dtype) -> None:
    """One shape: a line for each block size."""
    device = torch.device(options.device)
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(SHAPES[name](), dtype=dtype)
    ours = from_state_dict(model.config.to_dict(), model.state_dict(), dtype, device)
    theirs = HFDecoder(model.to(device), name)
    for block in BLOCKS:
        steps = [stepper(d, options.context, block) for d in (ours, theirs)]
        times: list[list[float]] = [[], []]
        for repeat in range(options.repeats + 5):
            for step, kept in zip(steps, times, strict=True):
                elapsed = step()
                if repeat >= 5:  # the first few warm up
                    kept.append(elapsed)
        (a, a_text), (b, b_text) = map(summary, times)
        print(
            f"{name:18} {block} token(s)  ours {a_text}  transformers {b_text}  ratio {a / b:.2f}"
        )


def summary(times: list[float]) -> tuple[float, str]:
    """Median, and a text with the quartiles."""
    low, middle, high = statistics.quantiles(times, n=4)
    return middle, f"{middle:7.3f} ms ({low:.3f} to {high:.3f})"


def trace(name: str, options: argparse.Namespace, dtype: torch.dtype) -> None:
    """Where our one-token step spends its time."""
    config = SHAPES[name]()
    state = AutoModelForCausalLM.from_config(config, dtype=dtype).state_dict()
    ours = from_state_dict(config.to_dict(), state, dtype, torch.device(options.device))
    step = stepper(ours, options.context, 1)
    for _ in range(20):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(50):
            step()
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=25))


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--shapes", nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--trace", choices=SHAPES)
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    print(
        f"device {options.device}, dtype {options.dtype}, threads {torch.get_num_threads()}, "
        f"torch {torch.__version__}, context {options.context}, {options.repeats} repeats"
    )
    if options.trace:
        trace(options.trace, options, dtype)
        return
    for name in options.shapes:
        compare(name, options, dtype)


if __name__ == "__main__":
    main()
