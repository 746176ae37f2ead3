"""A long text under a small cache: does anything grow, or fall apart behind the trained window?

    python -m scripts.long_run --texts FOLDER --out docs/benchmarks/long-run.json

Goes on from the beginning of the folder's first text with the press `streaming`, positions
`in_cache`, so that the cache never holds more than budget and interval. By stretches of the
produced text: time per token, memory of the process, bytes of the cache, and the loss of the text
under teacher forcing (below). The last 1,000 tokens are timed in turn with the first 1,000 of a
twin that has just reached its budget.

* `same_press`: by the very cache that it was produced with;
* `whole_cache`: by the model without a press, which reads each stretch after the 1,000 tokens
  before it; this judge does not share what the press has lost;
* `real_text`: the same press on texts that it has not written, as many tokens of each.

The JSON holds names and figures, no text.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.evaluation.benchmark import spread
from fastinfer.evaluation.corpora import read_corpus
from fastinfer.evaluation.environment import environment
from fastinfer.evaluation.perplexity import token_nats
from fastinfer.evaluation.windows import coder_of
from fastinfer.events import Compressed, Role, Step

STRETCH = 500
LEAD = 1000  # what the judge without a press reads before a stretch
EDGE = 1000  # tokens at both ends whose times are compared
TURN = 50  # tokens of each end in turn


def resident_bytes() -> int:
    """What the process holds in memory (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Run:
    """One stream that is read a part at a time."""

    def __init__(self, engine: Engine, prompt: list[int], config: DecodeConfig) -> None:
        self.ids: list[int] = []
        self.times: list[float] = []  # ms; tokens of one round share its time
        self.held: list[dict[str, int]] = []  # at the end of each stretch
        self.reached: int | None = None  # tokens before the first compression
        self._events = engine.stream(prompt, config)

    def advance(self, count: int) -> None:
        """Read until `count` tokens are there, or the budget is reached where that comes first."""
        waiting = self.reached is None
        for event in self._events:
            if isinstance(event, Compressed) and self.reached is None:
                self.reached = len(self.ids)
            if isinstance(event, Step):
                self._add(event)
                if len(self.ids) >= count or (waiting and self.reached is not None):
                    return

    def _add(self, step: Step) -> None:
        begin = self.times[-1] if self.times else 0.0
        count = len(step.tokens)
        spent = step.elapsed_ms - begin
        self.times += [begin + spent * (i + 1) / count for i in range(count)]
        self.ids += [token.id for token in step.tokens]
        if len(self.ids) // STRETCH > len(self.held):
            self.held.append(
                {
                    "resident_bytes": resident_bytes(),
                    "cache_tokens": step.cache_tokens[Role.TARGET],
                    "cache_allocated": step.cache_allocated[Role.TARGET],
                }
            )


def ends_in_turn(
    engine: Engine, prompt: list[int], config: DecodeConfig
) -> tuple[Run, dict[str, Any]]:
    """The whole run, and its last tokens against the first ones of a twin that has just reached its
    budget: the two in turn, so that a machine that slows down meanwhile slows both.
    """
    run = Run(engine, prompt, config)
    run.advance(config.max_new_tokens - EDGE)  # stops where the budget is reached
    run.advance(config.max_new_tokens - EDGE)
    twin = Run(engine, prompt, config)
    twin.advance(config.max_new_tokens)
    assert twin.reached is not None, "the text is long enough to be compressed"
    pairs = []
    starts = len(run.ids), len(twin.ids)
    for _ in range(EDGE // TURN):
        marks = len(run.ids), len(twin.ids)
        run.advance(marks[0] + TURN)
        twin.advance(marks[1] + TURN)
        last, first = (
            tpot(of.times, mark, len(of.ids) - mark)
            for of, mark in zip((run, twin), marks, strict=True)
        )
        pairs.append((first, last))
    first, last = (
        tpot(of.times, start, len(of.ids) - start)
        for of, start in zip((twin, run), reversed(starts), strict=True)
    )
    run.advance(config.max_new_tokens)
    return run, {
        "all": {"first_1000": first, "last_1000": last, "last_over_first": last / first},
        "first_1000": spread([first for first, _ in pairs]),
        "last_1000": spread([last for _, last in pairs]),
        "last_over_first": spread([last / first for first, last in pairs]),
    }


def tpot(times: Sequence[float], start: int, count: int) -> float:
    """Milliseconds per token of `count` tokens from `start` on."""
    return (times[start + count - 1] - times[start - 1]) / count


def judged(engine: Engine, config: DecodeConfig, ids: Sequence[int], first: int) -> dict[str, Any]:
    """Perplexity of each stretch of `ids[first:]` by the request's own cache and by a whole one."""
    press = config.compression
    assert press is not None
    own = token_nats(engine.session(Role.TARGET, config), ids, first, press.interval)
    plain = DecodeConfig(method="autoregressive")
    same, whole = [], []
    for start in range(first, len(ids), STRETCH):
        same.append(perplexity(own[start - first : start - first + STRETCH]))
        begin = max(0, start - LEAD)
        session = engine.session(Role.TARGET, plain)
        whole.append(
            perplexity(token_nats(session, ids[begin : start + STRETCH], start - begin, None))
        )
    return {"same_press": same, "whole_cache": whole}


def perplexity(nats: Sequence[float]) -> float:
    return math.exp(math.fsum(nats) / len(nats))


def measure(
    engine: Engine, texts: dict[str, list[int]], args: argparse.Namespace
) -> dict[str, Any]:
    """Everything but the machine."""
    roles = {"autoregressive": "target", "speculative": "target,draft"}
    config = DecodeConfig.from_mapping(
        {
            "method": args.method, "max_new_tokens": args.tokens, "ignore_eos": True,
            "temperature": args.temperature, "seed": 1, "press": "streaming",
            "press_on": roles[args.method], "press_positions": "in_cache",
            "max_cache_tokens": args.budget, "press_interval": args.interval,
        }
    )  # fmt: skip
    name, ids = next(iter(texts.items()))
    prompt = ids[: args.prompt_tokens]
    run, ends = ends_in_turn(engine, prompt, config)
    made = run.ids
    stretches = range(0, len(made) - STRETCH + 1, STRETCH)
    return {
        "options": config.to_mapping(),
        "prompt": {"text": name, "tokens": len(prompt)},
        "tokens": len(made),
        "budget_reached_after": run.reached,
        "tpot_ms": ends,
        "stretch": STRETCH,
        "tpot_ms_by_stretch": [
            tpot(run.times, start or 1, STRETCH - (not start)) for start in stretches
        ],
        "distinct_share": [
            len(set(made[start : start + STRETCH])) / STRETCH for start in stretches
        ],
        "held": run.held,
        "perplexity": judged(engine, config, [*prompt, *made], len(prompt)),
        "real_text": {
            name: judged(engine, config, ids, len(prompt)) for name, ids in texts.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--texts", required=True, help="a folder of text files")
    parser.add_argument(
        "--method", choices=("autoregressive", "speculative"), default="autoregressive"
    )
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--budget", type=int, default=512)
    parser.add_argument("--interval", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    engine = load(args.preset)
    encode = coder_of(engine.tokenizer).encode
    needed = args.prompt_tokens + args.tokens
    texts = {
        document.name: encode(document.text[: 16 * needed])[:needed]
        for document in read_corpus(args.texts)
    }
    document = {
        "kind": "fastinfer-long-run",
        "environment": environment(),
        "preset": args.preset,
        "model": engine.info.models[Role.TARGET],
        "context": engine.info.context,
        "dtype": engine.info.dtype,
        "device": engine.info.device,
        **measure(engine, texts, args),
    }
    args.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for key in ("tpot_ms", "perplexity", "held", "real_text"):
        print(key, json.dumps(document[key]))


if __name__ == "__main__":
    main()
