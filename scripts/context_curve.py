"""How the time of one token grows with the context, and the time to the first with the prompt.

    python scripts/context_curve.py --preset nano --out docs/benchmarks/context-nano

Times plain steps of the target at several contexts, the attention inside them, and the prefill of
prompts of several lengths; contexts in turn, so that noise meets all alike. What is left of a step
without its attention should be level, or rise as the control does: that is the same rest at the
shortest context, where each attention is followed by reading as many bytes of something else as
attention reads of the cache at this one. What it rises by is what such reading pushes out of the
processor's caches. The prefill should be a straight line (but for attention, which grows with the
square). The ids are random: time does not depend on them. Writes OUT.json and OUT.png; the last
line is the JSON document.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import torch
from plotly.subplots import make_subplots
from torch import Tensor

from fastinfer.engine import load
from fastinfer.evaluation.benchmark import spread
from fastinfer.evaluation.environment import environment
from fastinfer.events import Role
from fastinfer.models.session import Session
from fastinfer.models.transformer import Block

CONTEXTS = (100, 400, 700, 1000, 1300, 1600, 1900)
STEPS = 16


def milliseconds(begin: float) -> float:
    return (time.perf_counter() - begin) * 1000.0


class TimedAttention:
    """A decoder's attention, timed where it happens.

    Measured by itself it would read a cache that the weights have not just pushed out of the
    processor's own caches, and be far too quick.
    """

    def __init__(self, decoder: Any) -> None:
        self.ms = 0.0
        self.beside: itertools.cycle[Tensor] | None = None  # read after each attention, timed too
        self._block = decoder._block
        decoder._block = self.block

    def block(self, *args: Any) -> Block:
        """The block that every forward asks the decoder for."""
        block: Block = self._block(*args)

        def attend(*args: Any) -> Any:
            begin = time.perf_counter()
            attended = block.attend(*args)
            if self.beside is not None:
                next(self.beside).sum()
            self.ms += milliseconds(begin)
            return attended

        return dataclasses.replace(block, attend=attend)


def measure(preset: str, repeats: int) -> dict[str, Any]:
    """Step, attention, rest and prefill times at each context, with the control's rest."""
    engine = load(preset)
    decoder = engine._models.decoders[Role.TARGET]
    attention = TimedAttention(decoder)
    vocab = engine._models.vocab_size
    ids = torch.randint(vocab, (CONTEXTS[-1] + STEPS + 1,)).tolist()
    session = Session(decoder, Role.TARGET, vocab)
    session.forward(ids[:1], 1)
    token_bytes = session.cache_size().bytes

    def times(context: int) -> dict[str, float]:
        """Medians over the steps after one prefill."""
        session = Session(decoder, Role.TARGET, vocab)
        begin = time.perf_counter()
        session.forward(ids[:context], 1)
        prefill = milliseconds(begin)
        steps, shares = [], []
        for length in range(context + 1, context + STEPS + 1):
            attention.ms, begin = 0.0, time.perf_counter()
            session.forward(ids[:length], 1)
            steps.append(milliseconds(begin))
            shares.append(attention.ms)
        rest = [step - share for step, share in zip(steps, shares, strict=True)]
        return {
            "step_ms": spread(steps)["median"],
            "attention_ms": spread(shares)["median"],
            "rest_ms": spread(rest)["median"],
            "prefill_ms": prefill,
        }

    def control(context: int) -> float:
        """The rest of a step at the shortest context, with this one's bytes read beside it."""
        layers = decoder.arch.num_layers
        words = (context - CONTEXTS[0]) * token_bytes // layers // 8
        if words:
            attention.beside = itertools.cycle(torch.ones(layers, words, dtype=torch.int64))
        try:
            return times(CONTEXTS[0])["rest_ms"]
        finally:
            attention.beside = None

    found: dict[int, dict[str, list[float]]] = {context: {} for context in CONTEXTS}
    for repeat in range(repeats + 1):  # the first is a warm-up
        for context in CONTEXTS[:: 1 if repeat % 2 else -1]:
            row = {**times(context), "control_rest_ms": control(context)}
            if repeat:
                for name, value in row.items():
                    found[context].setdefault(name, []).append(value)
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
    step, attention, rest, control, prefill = (
        [document["contexts"][c][name]["median"] for c in contexts]
        for name in ("step_ms", "attention_ms", "rest_ms", "control_rest_ms", "prefill_ms")
    )
    chart = make_subplots(
        rows=1, cols=2,
        subplot_titles=(f"{document['model']}: one token, ms", "First token, ms"),
    )  # fmt: skip
    for name, values in (
        ("step", step), ("step less attention", rest), ("the same, control", control),
        ("attention", attention),
    ):  # fmt: skip
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
