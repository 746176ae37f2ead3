"""Many clients at once against `serve`: whole answers, the right ones, level memory, no place lost.

    python -m scripts.load_check --out docs/benchmarks/load-nano.json

First each request alone, by plain decoding. Then clients that ask without a pause, by each route
and method, for a while: an answer is right if it is whole and has the text of that request alone.
The queue is shorter than the clients are many, so that some are refused with 429 and come again.
Then clients that hang up: each after its own first tokens, and all at once while most of them wait.
The last line is the JSON document; the exit code is 1 where something did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import itertools
import json
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fastinfer.evaluation.environment import environment
from scripts.asked import KINDS, NUM_TOKENS, REQUESTS, ask
from scripts.served import Served, serving

WARM_S = 30.0  # until memory has its size, or a quarter of the run if that is shorter
MB = 1_000_000
GROWTH_BYTES = 16 * MB  # more than this after the warm-up is no noise any longer
SAMPLE_S = 0.1
FREED_S = 1.0  # the longest that a place may stay taken after its client has gone
LONG = {"prompt": "The old man looked at the sea and", "max_new_tokens": 400, "temperature": 0.8}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is asked. `max_waiting` is the queue of the first part."""

    clients: int = 32
    seconds: float = 120.0
    max_waiting: int = 24
    leavers: int = 200


def check(plan: Plan) -> dict[str, Any]:
    """Both parts; JSON-ready."""
    options = ("--preset", "nano", "--dtype", "float32")
    with serving(*options, "--max-waiting", str(plan.max_waiting)) as served:
        load = asyncio.run(under_load(served, plan))
    with serving(*options, "--max-waiting", str(plan.leavers)) as served:
        leaving = asyncio.run(hanging_up(served, plan.leavers))
    return {
        "environment": environment(),
        "preset": "nano", "dtype": "float32", "device": "cpu",
        "under_load": load, "hanging_up": leaving,
        "holds": holds(load) and leaves_nothing(leaving),
    }  # fmt: skip


def holds(load: dict[str, Any]) -> bool:
    """Whether the first part went as it should; memory is judged in runs of a minute or more."""
    good = not load["errors"] and load["answers"] > 0
    flat = load["seconds"] < 2 * WARM_S or load["rss_growth_bytes"] <= GROWTH_BYTES
    return bool(good and flat)


def leaves_nothing(leaving: dict[str, Any]) -> bool:
    """Whether every place was free in time, and the server went on to answer."""
    parts = (leaving["mid_stream"], leaving["all_at_once"])
    return all(part["freed_s"] <= FREED_S for part in parts) and leaving["answers_after"]


# --- under load -----------------------------------------------------------------------------------


class Tally:
    """What came back."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.refusals = 0


async def under_load(served: Served, plan: Plan) -> dict[str, Any]:
    """Clients that ask without a pause, and the server's memory meanwhile."""
    tally = Tally()
    async with _client(served) as client:
        alone = await _alone(client)
        begun = time.monotonic()
        watch = asyncio.create_task(_watched(served, begun))
        until = begun + plan.seconds
        await asyncio.gather(
            *(_asks(client, index, until, alone, tally) for index in range(plan.clients))
        )
        seconds = time.monotonic() - begun
        watch.cancel()
        memory = await watch
    return {
        "clients": plan.clients,
        "max_waiting": plan.max_waiting,
        "new_tokens": NUM_TOKENS,
        "seconds": round(seconds, 1),
        "answers": tally.answers.total(),
        "answers_by_route": dict(sorted(tally.answers.items())),
        "refused_429": tally.refusals,
        "errors": dict(tally.errors),
        **growth(memory, min(WARM_S, plan.seconds / 4)),
    }


async def _alone(client: httpx.AsyncClient) -> dict[str, str]:
    """Each request's text when nobody else asks, by plain decoding."""
    plain = [request for request in REQUESTS if request.options["method"] == "autoregressive"]
    return {request.alone: (await ask(client, request, "/predict")).text for request in plain}


async def _asks(
    client: httpx.AsyncClient, index: int, until: float, alone: dict[str, str], tally: Tally
) -> None:
    """One client: every request by every route, in an order of its own."""
    wanted = list(itertools.product(REQUESTS, KINDS))
    random.Random(index).shuffle(wanted)
    for request, kind in itertools.cycle(wanted):
        left = until - time.monotonic()
        if left <= 0:
            return
        try:
            answer = await ask(client, request, kind)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            tally.errors[f"{kind}: {type(error).__name__}: {error}"[:200]] += 1
            continue
        if answer.retry_after_s is not None:
            tally.refusals += 1
            await asyncio.sleep(min(answer.retry_after_s, left))
        elif answer.text != alone[request.alone]:
            tally.errors[f"{kind}: not the text of the request alone: {request.name}"] += 1
        else:
            tally.answers[kind] += 1


async def _watched(served: Served, begun: float) -> list[tuple[float, int]]:
    """Resident memory by time, until this is cancelled."""
    seen = []
    try:
        while True:
            seen.append((time.monotonic() - begun, resident_bytes(served.process.pid)))
            await asyncio.sleep(SAMPLE_S)
    except asyncio.CancelledError:
        return seen


def resident_bytes(pid: int) -> int:
    """The memory that a process holds (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has ended")


def growth(memory: list[tuple[float, int]], warm_s: float) -> dict[str, Any]:
    """Resident memory at the start, when warm and at the end: medians over a sixth of `warm_s`."""
    span, last = warm_s / 6, memory[-1][0]
    warm = statistics.median_low(size for at, size in memory if 0 <= at - warm_s <= span)
    end = statistics.median_low(size for at, size in memory if last - at <= span)
    return {
        "warm_s": warm_s,
        "rss_start_bytes": memory[0][1],
        "rss_warm_bytes": warm,
        "rss_end_bytes": end,
        "rss_growth_bytes": end - warm,
    }


# --- hanging up -----------------------------------------------------------------------------------


async def hanging_up(served: Served, leavers: int) -> dict[str, Any]:
    """Clients that go: each at its own first tokens, then all at once."""
    files = _open_files(served)
    async with _client(served) as client:
        await asyncio.gather(*(_leave_mid_stream(client) for _ in range(leavers)))
        freed_s = await _freed(client, time.monotonic())
    async with _client(served) as client:
        at_once = await _leave_at_once(client, leavers)
    async with _client(served) as client:
        answer = await ask(client, REQUESTS[0], "/predict")
    await asyncio.sleep(FREED_S)  # the last connection's own end
    return {
        "mid_stream": {"clients": leavers, "freed_s": freed_s},
        "all_at_once": at_once,
        "answers_after": bool(answer.text),
        "open_files": {"before": files, "after": _open_files(served)},
    }


async def _leave_mid_stream(client: httpx.AsyncClient) -> None:
    """Wait for the turn, take some tokens, and close the connection."""
    async with client.stream("POST", "/generate", json=LONG) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if '"step"' in line:
                return
    raise ValueError("the stream ended without a token")


async def _leave_at_once(client: httpx.AsyncClient, leavers: int) -> dict[str, Any]:
    """One is mid-stream and the others wait; then all of them close their connections."""
    tasks = [asyncio.create_task(client.post("/generate", json=LONG)) for _ in range(leavers)]
    while sum(places := await _places(client)) < leavers:
        await asyncio.sleep(0.02)
    last = time.monotonic()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "clients": leavers, "running": places[0], "waiting": places[1],
        "freed_s": await _freed(client, last),
    }  # fmt: skip


async def _freed(client: httpx.AsyncClient, last: float) -> float:
    """Seconds from `last` until nobody has a turn or waits for one."""
    while any(await _places(client)):
        if time.monotonic() - last > 60 * FREED_S:
            raise ValueError("places are still taken")
        await asyncio.sleep(0.02)
    return round(time.monotonic() - last, 3)


async def _places(client: httpx.AsyncClient) -> tuple[int, int]:
    """How many decode, and how many wait."""
    told = (await client.get("/metrics")).text
    found = dict(
        line.split()
        for line in told.splitlines()
        if line.startswith("fastinfer_") and "{" not in line
    )
    return int(float(found["fastinfer_running"])), int(float(found["fastinfer_waiting"]))


def _open_files(served: Served) -> int:
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


def _client(served: Served) -> httpx.AsyncClient:
    """A client that opens as many connections as it needs, and is patient."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=served.url, limits=limits, timeout=600)


# --- the command ----------------------------------------------------------------------------------


def main() -> int:
    """Parse argv, check, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    for field in dataclasses.fields(Plan):
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(option, type=type(field.default), default=field.default)
    parser.add_argument("--out", type=Path, help="write the document there too")
    given = vars(parser.parse_args())
    out = given.pop("out")
    document = check(Plan(**given))
    if out is not None:
        out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document))
    return 0 if document["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
