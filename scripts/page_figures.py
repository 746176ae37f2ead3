"""What the page costs and whether its figures are right: docs/benchmarks/page.

    python -m scripts.page_figures --out docs/benchmarks/page.json [--repeats 5]

Three measurements on the bundled models. *listening*: TPOT of one request on the command line, by
the page's own server while nobody listens (`POST /predict`), there with a gradio client that
listens, and on the page itself with Chromium on the same cores; in turns. *compare*: the speed-up
that the Compare tab shows after "Again ×5", and that of `bench` for the same configuration.
*proof*: how long Prove it takes and what it finds, for each kind of configuration. The last line of
stdout is the document.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from gradio_client import Client
from playwright.sync_api import Browser, sync_playwright

from fastinfer.engine import load
from fastinfer.evaluation.benchmark import spread
from fastinfer.evaluation.environment import environment
from fastinfer.http.line import InLine, Line
from fastinfer.models.devices import core_leaver
from fastinfer.shelf import CurrentEngine, EngineShelf
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.compare_tab import CompareHandler
from fastinfer.ui.link import write_link
from fastinfer.ui.proof_tab import DRAWS, PROMPT, ProofHandler

TURNS = 7  # of Compare and bench
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = {
    "method": "speculative", "rule": "coupled", "gamma_policy": "constant", "gamma": 4,
    "max_new_tokens": 128, "temperature": 0, "seed": 1,
}  # fmt: skip
LONG = {**OPTIONS, "max_new_tokens": 1500}  # what comes with a run's beginning hardly counts
PROOFS = {
    "residual, two tiers": ("speculative", "residual", "none", "draft", False),
    "coupled, two tiers": ("speculative", "coupled", "none", "draft", False),
    "residual, three tiers": ("cascade", "residual", "none", "draft", False),
    "coupled, three tiers": ("cascade", "coupled", "none", "draft", False),
    "press on the draft": ("speculative", "residual", "streaming", "draft", False),
    "wrong rule": ("speculative", "residual", "none", "draft", True),
    "press on the target": ("speculative", "residual", "streaming", "target", False),
}


def command(*words: str, threads: int) -> str:
    """The last line of what `python -m fastinfer WORDS` prints."""
    run = subprocess.run(
        [sys.executable, "-m", "fastinfer", *words],
        capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    return run.stdout.strip().splitlines()[-1]


def flags(options: dict[str, Any]) -> list[str]:
    return [part for k, v in options.items() for part in (f"--{k.replace('_', '-')}", str(v))]


def by_command() -> float:
    """TPOT in ms on the command line, after a run in the same process that nobody counts."""
    code = (
        "import sys; from fastinfer.cli import main\n"
        "words = sys.argv[1:]\n"
        "main(words + ['--max-new-tokens', '16'])\n"
        "main(words)"
    )
    words = ["generate", "--prompt", PROMPT, "--json", *flags(LONG)]
    run = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    events = [json.loads(line) for line in run.stdout.splitlines()]
    begin = max(i for i, event in enumerate(events) if event["type"] == "started")
    steps = [event for event in events[begin:] if event["type"] == "step"]
    made = sum(len(step["tokens"]) for step in steps)
    return float((steps[-1]["elapsed_ms"] - steps[0]["elapsed_ms"]) / (made - 1))


def by_post(url: str) -> float:
    """TPOT in ms that the server's engine had while nobody listened."""
    body = {"prompt": PROMPT, **LONG}
    answer = httpx.post(f"{url}/predict", json=body, timeout=120.0).raise_for_status().json()
    return float(answer["stats"]["tpot_ms"])


def by_client(url: str) -> float:
    """TPOT in ms that the server's engine had while a gradio client took every update."""
    client = Client(url, verbose=False)
    own = ("method", "max_new_tokens", "temperature", "seed")
    named = {name: LONG[name] for name in own}
    more = {name: value for name, value in LONG.items() if name not in own}
    job = client.submit(PROMPT, **named, options=more, api_name="/generate")
    updates = list(job)
    assert len(updates) > 1, "nothing was streamed"
    return float(updates[-1]["stats"]["tpot_ms"])


def by_page(browser: Browser, url: str) -> float:
    """TPOT in ms that the page shows, with Chromium drawing text and charts on the same cores."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{url}/#{write_link(PROMPT, LONG)}")
    page.wait_for_function("document.querySelector('[data-chart=tpot]')?.data?.length === 3")
    field = "document.querySelector('#max_new_tokens input')"
    page.wait_for_function(f"{field}.value === '{LONG['max_new_tokens']}'")
    page.click("#generate")
    page.wait_for_selector(".fi-view[data-state=done]", timeout=120_000)
    shown = page.inner_text("[data-text=tpot]")
    page.close()
    number = re.fullmatch(r"([\d.]+) ms", shown)
    assert number is not None, shown
    return float(number[1])


@contextmanager
def served() -> Iterator[str]:
    """The app in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-u", "app.py", "--port", "7995"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()  # says that it is ready
        yield "http://127.0.0.1:7995"
    finally:
        process.terminate()
        process.wait()


def listening(repeats: int) -> dict[str, Any]:
    """All four in turns, and what each listener's share is.

    Processes differ by more than listening costs, each from its beginning to its end: so a
    listener's time is also set beside that of the same process with nobody listening.
    """
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert chromium, "no Chromium found: apt-get install chromium"
    times: dict[str, list[float]] = {"command": [], "post": [], "client": [], "chromium": []}
    with served() as url, sync_playwright() as playwright:
        by_client(url)  # warm, as the command is
        for _ in range(repeats):
            times["command"].append(by_command())
            times["post"].append(by_post(url))
            times["client"].append(by_client(url))
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            times["chromium"].append(by_page(browser, url))
            browser.close()

    def over(name: str, other: str) -> dict[str, float]:
        return spread([v / c for v, c in zip(times[name], times[other], strict=True)])

    return {
        "options": LONG,
        "repeats": repeats,
        "tpot_ms": {name: spread(values) for name, values in times.items()},
        "over_command": {name: over(name, "command") for name in ("post", "client", "chromium")},
        "over_post": {name: over(name, "post") for name in ("client", "chromium")},
    }


def backstage() -> Backstage:
    return Backstage(shelf=EngineShelf(load("nano")), line=Line(4))


def comparing() -> dict[str, Any]:
    """What Compare shows after "Again ×5", what bench finds, and the first over the second.

    Both with as many threads as the page takes, `TURNS` times in turns: single calls of either
    differ by a fifth and more on a shared machine.
    """
    around = core_leaver()
    with around():
        threads = torch.get_num_threads()
    held = backstage()
    engine = InLine(CurrentEngine(held.shelf), held.line)
    handler = CompareHandler(engine, held)
    more = "gamma_policy = constant\ngamma = 4"
    nothing = ("none", "none", "draft", 0.5, "")

    def on_the_page() -> float:
        *_, last = handler.again(
            PROMPT, 128, 0, "1", "coupled", "speculative", "none", "draft", 0.5, more, *nothing
        )
        return float(json.loads(last)["columns"][1]["speedup"].removesuffix("×"))

    def by_bench() -> float:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "prompt.txt").write_text(PROMPT, encoding="utf-8")
            line = command(
                "bench", "--methods", "autoregressive,speculative", "--prompts", folder,
                "--repeats", "5", "--rule", "coupled", "--gamma-policy", "constant", "--gamma", "4",
                "--max-new-tokens", "128", threads=threads,
            )  # fmt: skip
        return float(json.loads(line)["results"]["speculative"]["achieved_speedup"])

    turns = [(on_the_page(), by_bench()) for _ in range(TURNS)]
    shown, measured = (spread(values) for values in zip(*turns, strict=True))
    return {
        "options": OPTIONS, "turns": TURNS, "repeats": 5, "threads": threads, "shown": shown,
        "bench": measured, "shown_over_bench": shown["median"] / measured["median"],
    }  # fmt: skip


def proving() -> dict[str, Any]:
    """Seconds and verdict of each kind of proof, as the tab makes it."""
    held = backstage()
    engine = InLine(CurrentEngine(held.shelf), held.line)
    handler = ProofHandler(engine, held)
    found: dict[str, Any] = {}
    for name, (method, rule, press, on, wrong) in PROOFS.items():
        begin = time.perf_counter()
        variant = (method, press, on, 0.7 if on == "target" else 0.5, "gamma_max = 4")
        *_, last = handler.run(PROMPT, DRAWS, wrong, 0.7, "1", rule, *variant)
        seconds = time.perf_counter() - begin
        verdict = json.loads(last)["verdict"]
        found[name] = {"seconds": seconds, "passed": verdict["tone"] == "good"}
    return {"draws": DRAWS, "found": found}


def main() -> None:
    """Parse arguments, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="listening,compare,proof")
    args = parser.parse_args()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "listening": lambda: listening(args.repeats), "compare": comparing, "proof": proving,
    }  # fmt: skip
    info = load("nano").info
    document: dict[str, Any] = {
        "environment": environment(), "preset": "nano", "dtype": info.dtype, "device": info.device,
    }  # fmt: skip
    for name in args.only.split(","):
        document[name] = parts[name]()
        print(f"{name}: {json.dumps(document[name])}", file=sys.stderr)
    text = json.dumps(document, indent=2)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    print(json.dumps(document))


if __name__ == "__main__":
    main()
