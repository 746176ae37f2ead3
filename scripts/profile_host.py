"""Where a round's time goes: inside the models' forwards, and outside them (host time).

python scripts/profile_host.py [--preset nano] [--max-new-tokens 256] [--repeats 5]

Prints, per method, the share of decode time spent outside the forwards (median and quartiles), then
the last line as one JSON document.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.evaluation.benchmark import spread
from fastinfer.evaluation.environment import environment
from fastinfer.events import Role, Step

PROMPT = "The old man looked at the sea and said nothing for a long time."


class Timed:
    """Times the forwards of a decoder, which otherwise stays what it is."""

    def __init__(self, decoder: Any) -> None:
        self._forward = decoder.forward
        self.seconds = 0.0
        decoder.forward = self.forward

    def forward(self, *args: Any) -> Any:
        begin = time.perf_counter()
        result = self._forward(*args)
        self.seconds += time.perf_counter() - begin
        return result


def host_share(engine: Engine, timed: list[Timed], options: dict[str, Any]) -> float:
    """Share of the time after the first token that no forward accounts for."""
    config = DecodeConfig.from_mapping({**options, "ignore_eos": True, "seed": 1})
    inside = first = last = 0.0
    for event in engine.stream(PROMPT, config):
        if isinstance(event, Step):
            if event.index == 0:
                first = event.elapsed_ms
                for decoder in timed:
                    decoder.seconds = 0.0
            last = event.elapsed_ms
    inside = sum(decoder.seconds for decoder in timed) * 1000.0
    return 1.0 - inside / (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    engine = load(args.preset)
    decoders = engine._models.decoders
    timed = [Timed(decoder) for decoder in decoders.values()]
    methods: dict[str, dict[str, Any]] = {"autoregressive": {"method": "autoregressive"}}
    if Role.DRAFT in decoders:
        methods["speculative"] = {"method": "speculative"}
    if Role.INTERMEDIATE in decoders:
        methods["cascade"] = {"method": "cascade"}
    result: dict[str, Any] = {"environment": environment(), "preset": args.preset,
                              "dtype": engine.info.dtype, "max_new_tokens": args.max_new_tokens,
                              "host_share": {}}  # fmt: skip
    for temperature in (0.0, 0.8):
        for name, options in methods.items():
            wanted = {**options, "temperature": temperature, "max_new_tokens": args.max_new_tokens}
            host_share(engine, timed, wanted)
            shares = spread([host_share(engine, timed, wanted) for _ in range(args.repeats)])
            result["host_share"][f"{name}, temperature {temperature}"] = shares
            print(f"{name:16} temperature {temperature}: {100 * shares['median']:.1f} % outside")
    print(f"{torch.get_num_threads()} threads")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
