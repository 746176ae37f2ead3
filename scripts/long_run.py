"""A long text under a small cache: does anything grow, or fall apart behind the trained window?

    python -m scripts.long_run --texts FOLDER --out docs/benchmarks/long-run.json

Goes on from the beginning of the folder's first text with the press `streaming`, positions
`in_cache`, so that the cache never holds more than budget and interval. By stretches of the
produced text: time per token, memory of the process, bytes of the cache, and the loss of the text
under teacher forcing

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
from fastinfer.evaluation.corpora import read_corpus
from fastinfer.evaluation.environment import environment
from fastinfer.evaluation.perplexity import token_nats
from fastinfer.evaluation.windows import coder_of
from fastinfer.events import Compressed, Role, Step

STRETCH = 500
LEAD = 1000  # what the judge without a press reads before a stretch
EDGE = 1000  # tokens at both ends whose times are compared


def resident_bytes() -> int:
    """What the process holds in memory (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def generate(engine: Engine, prompt: list[int], config: DecodeConfig) -> dict[str, Any]:
    """The run: ids, a time for each token, and what is held at the end of each stretch."""
    ids: list[int] = []
    times: list[float] = []  # ms; tokens of one round share its time
    held: list[dict[str, int]] = []
    reached: int | None = None  # tokens before the first compression
    for event in engine.stream(prompt, config):
        if isinstance(event, Compressed) and reached is None:
            reached = len(ids)
        if not isinstance(event, Step):
            continue
        begin = times[-1] if times else 0.0
        count = len(event.tokens)
        times += [begin + (event.elapsed_ms - begin) * (i + 1) / count for i in range(count)]
        ids += [token.id for token in event.tokens]
        if len(ids) // STRETCH > len(held):
            held.append(
                {
                    "resident_bytes": resident_bytes(),
                    "cache_tokens": event.cache_tokens[Role.TARGET],
                    "cache_allocated": event.cache_allocated[Role.TARGET],
                }
            )
    assert reached is not None, "the text is long enough to be compressed"
    return {"ids": ids, "times": times, "held": held, "reached": reached}


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
    run = generate(engine, prompt, config)
    times, reached = run["times"], run["reached"]
    first, last = tpot(times, reached, EDGE), tpot(times, len(times) - EDGE, EDGE)
    made = run["ids"]
    stretches = range(0, len(made) - STRETCH + 1, STRETCH)
    return {
        "options": config.to_mapping(),
        "prompt": {"text": name, "tokens": len(prompt)},
        "tokens": len(made),
        "budget_reached_after": reached,
        "tpot_ms": {"first_1000": first, "last_1000": last, "last_over_first": last / first},
        "stretch": STRETCH,
        "tpot_ms_by_stretch": [
            tpot(times, start or 1, STRETCH - (not start)) for start in stretches
        ],
        "distinct_share": [
            len(set(made[start : start + STRETCH])) / STRETCH for start in stretches
        ],
        "held": run["held"],
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
