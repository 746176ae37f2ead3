"""How the time of one token grows with the context, and the time to the first with the prompt.

    python scripts/context_curve.py --preset nano --out docs/benchmarks/context-nano

Times plain steps of the target at several contexts, attention alone on tensors of the same shapes,
and the prefill of prompts of several lengths; contexts in turn, so that noise meets all alike. What
is left of a step without its attention should be level, and the prefill a straight line (but for
attention, which grows with the square). The ids are random: time does not depend on them. Writes
OUT.json and OUT.png; the last line is the JSON document.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch.nn import functional

from fastinfer.engine import load
from fastinfer.evaluation.benchmark import spread
from fastinfer.evaluation.environment import environment
from fastinfer.events import Role
from fastinfer.models.session import Session

CONTEXTS = (100, 400, 700, 1000, 1300, 1600, 1900)
STEPS = 16


def milliseconds(begin: float) -> float:
    return (time.perf_counter() - begin) * 1000.0


def attention_ms(decoder: Any, context: int) -> float:
    """One token's attention in every layer, on a cache of this many entries."""
    arch = decoder.arch
    query = torch.randn(1, arch.num_heads, 1, arch.head_dim, dtype=decoder.cache_dtype)
    shape = (arch.num_layers, 2, 1, arch.num_kv_heads, context, arch.head_dim)
    layers = torch.randn(shape, dtype=decoder.cache_dtype)
    grouped = arch.num_heads != arch.num_kv_heads
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        for keys, values in layers:
            functional.scaled_dot_product_attention(query, keys, values, enable_gqa=grouped)
        times.append(milliseconds(begin))
    return spread(times)["median"]


def measure(preset: str, repeats: int) -> dict[str, Any]:
    """Step, attention and prefill times at each context: medians and quartiles over repeats."""
    engine = load(preset)
    decoder = engine._models.decoders[Role.TARGET]
    vocab = engine._models.vocab_size
    ids = torch.randint(vocab, (CONTEXTS[-1] + STEPS + 1,)).tolist()
    names = ("step_ms", "attention_ms", "prefill_ms")
    found: dict[int, dict[str, list[float]]] = {c: {n: [] for n in names} for c in CONTEXTS}
    for repeat in range(repeats + 1):  # the first is a warm-up
        for context in CONTEXTS[:: 1 if repeat % 2 else -1]:
            session = Session(decoder, Role.TARGET, vocab)
            begin = time.perf_counter()
            session.forward(ids[:context], 1)
            prefill = milliseconds(begin)
            steps = []
            for length in range(context + 1, context + STEPS + 1):
                begin = time.perf_counter()
                session.forward(ids[:length], 1)
                steps.append(milliseconds(begin))
            times = (spread(steps)["median"], attention_ms(decoder, context), prefill)
            if repeat:
                for name, value in zip(names, times, strict=True):
                    found[context][name].append(value)
    return {
        "environment": environment(),
        "preset": preset,
        "model": decoder.name,
        "dtype": engine.info.dtype,
        "device": engine.info.device,
        "repeats": repeats,
        "steps": STEPS,
        "contexts": {c: {n: spread(v) for n, v in got.items()} for c, got in found.items()},
    }


def figure(document: dict[str, Any]) -> go.Figure:
    """Left: a step, its attention, and the rest. Right: the prefill and a line through its ends."""
    contexts = list(document["contexts"])
    step, attention, prefill = (
        [document["contexts"][c][name]["median"] for c in contexts]
        for name in ("step_ms", "attention_ms", "prefill_ms")
    )
    rest = [s - a for s, a in zip(step, attention, strict=True)]
    chart = make_subplots(
        rows=1, cols=2,
        subplot_titles=(f"{document['model']}: one token, ms", "First token, ms"),
    )  # fmt: skip
    for name, values in (("step", step), ("step less attention", rest), ("attention", attention)):
        chart.add_trace(go.Scatter(x=contexts, y=values, name=name), row=1, col=1)
    chart.add_trace(go.Scatter(x=contexts, y=prefill, name="prefill"), row=1, col=2)
    ends = [contexts[0], contexts[-1]], [prefill[0], prefill[-1]]
    chart.add_trace(
        go.Scatter(x=ends[0], y=ends[1], name="straight line", line={"dash": "dot"}), row=1, col=2
    )
    chart.update_xaxes(title_text="tokens of context", row=1, col=1)
    chart.update_xaxes(title_text="tokens of prompt", row=1, col=2)
    chart.update_yaxes(rangemode="tozero")
    chart.update_layout(template="plotly_white", width=1150, height=430, margin={"t": 60})
    return chart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True, help="path without an ending")
    args = parser.parse_args()
    document = measure(args.preset, args.repeats)
    text = json.dumps(document, indent=2)
    args.out.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    figure(document).write_image(args.out.with_suffix(".png"), scale=2)
    for context, found in document["contexts"].items():
        print(f"{context:5} " + " ".join(f"{n} {v['median']:8.2f}" for n, v in found.items()))
    print(json.dumps(document))


if __name__ == "__main__":
    main()
