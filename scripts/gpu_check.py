"""Everything about the GPU in one run of under 8 minutes, as JSON.

    python -m scripts.gpu_check --out FILE [--device cuda] [--shapes pythia] [--only PART ...]

Each part has a time budget of its own and can fail without harm to the others; the file is written
after each. Weights are random, of the published shapes, so nothing is downloaded. `--device cpu
--shapes tiny` runs the same code anywhere in under a minute: a test, not a measurement.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fastinfer.evaluation.environment import environment, peak_memory_bytes
from scripts import gpu_decoding, gpu_steps
from scripts.gpu_lab import SHAPES, Lab

Result = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One thing to measure. `run` fills the mapping as it goes: what is there is kept."""

    run: Callable[[Lab, Result], None]
    seconds: float  # the budget


# In this order: the first use of each model is measured before anything has warmed it up.
PARTS: dict[str, Part] = {
    "copy_bandwidth": Part(gpu_steps.copy_bandwidth, 15),
    "first_token": Part(gpu_decoding.first_token, 70),
    "parity": Part(gpu_steps.parity, 50),
    "steps": Part(gpu_steps.steps, 60),
    "sampling": Part(gpu_decoding.sampling, 15),
    "decoding": Part(gpu_decoding.decoding, 90),
    "transformers": Part(gpu_decoding.transformers, 90),
    "attention": Part(gpu_steps.attention, 20),
}

NOTES = {
    "weights": "random, of the published shapes; loading means making them on the device",
    "acceptance": (
        f"planted: each drafted token is accepted with probability {gpu_decoding.PLANTED} whatever "
        "the laws say, after the real test has been computed; the text means nothing"
    ),
    "assisted": "transformers' assisted generation accepts what these random models agree on",
    "graphs": "on a CPU the same static step runs without a graph",
}


class OutOfTime(Exception):
    """A part has used up its budget."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises `OutOfTime` inside once the time is over (where the system has such alarms)."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise OutOfTime(f"more than {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_part(name: str, part: Part, lab: Lab) -> Result:
    """Its figures, and how it went."""
    print(f"{name} (at most {part.seconds:.0f} s) ...", file=sys.stderr, flush=True)
    figures: Result = {}
    error = None
    on_gpu = lab.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    try:
        with limited(part.seconds):
            part.run(lab, figures)
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
        traceback.print_exc(file=sys.stderr)
    seconds = time.perf_counter() - begin
    print(f"{name}: {error or 'done'}, {seconds:.1f} s", file=sys.stderr, flush=True)
    return {
        "ok": error is None,
        "error": error,
        "seconds": round(seconds, 3),
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if on_gpu else peak_memory_bytes(),
        "figures": figures,
    }


def run_parts(parts: Mapping[str, Part], lab: Lab, out: Path | None) -> Result:
    """All parts; the file is complete after each as far as it goes."""
    report: Result = {
        "environment": environment(),
        "device": str(lab.device),
        "shapes": lab.family,
        "measured": lab.device.type == "cuda",
        "notes": NOTES,
        "parts": {},
    }
    for name, part in parts.items():
        report["parts"][name] = run_part(name, part, lab)
        report["summary"] = summary(report["parts"], lab.names[-1])
        if out is not None:
            out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def summary(parts: Mapping[str, Any], largest: str) -> dict[str, float | None]:
    """What the largest shape comes to; None where a part that it needs is missing."""

    def figure(name: str, *path: str) -> Any:
        value = parts.get(name, {}).get("figures", {})
        for key in path:
            value = value.get(key, {})
        return value or None

    def ratio(above: float | None, below: float | None) -> float | None:
        return above / below if above and below else None

    plain = figure("decoding", largest, "autoregressive", "tpot_ms")
    speedups = [
        run["speedup"] for run in (figure("decoding", largest) or {}).values() if "speedup" in run
    ]
    return {
        "autoregressive_tpot_ms": plain,
        "over_weight_bytes_by_bandwidth": ratio(plain, figure("steps", largest, "floor_ms")),
        "transformers_generate_over_ours": ratio(
            figure("transformers", largest, "generate", "tpot_ms"), plain
        ),
        "best_speculative_speedup": max(speedups, default=None),
        "loaded_to_first_token_seconds": figure(
            "first_token", largest, "from_loaded_to_first_token_seconds"
        ),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run; 0 when every part went well."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.gpu_check", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, help="JSON file; without it, stdout")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shapes", choices=SHAPES, default="pythia")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", default=list(PARTS))
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: this machine has no CUDA device; try --device cpu")
    lab = Lab(torch.device(options.device), options.shapes)
    chosen = {name: part for name, part in PARTS.items() if name in options.only}
    report = run_parts(chosen, lab, options.out)
    if options.out is None:
        print(json.dumps(report, indent=2))
    return 0 if all(part["ok"] for part in report["parts"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
