"""Messages of a run -> lines of JSON for the stream view. Pure: no gradio, no clock, no threads.

The view only paints, so everything is decided here. Kinds of line, by their one key:
`open` a new run with the prompt to echo; `text` words for named places; `state` how the run stands;
`tokens` spans to add; `points` chart points as [trace, x, y, hover text].
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any, Literal, assert_never

from fastinfer.config import DecodeConfig
from fastinfer.events import Compressed, Finished, Origin, Role, Started, Step, Token
from fastinfer.metrics import RunStats
from fastinfer.ui import labels
from fastinfer.ui.charts import BASELINE_TRACE, MEDIAN_TRACE, POINT_TRACE, WINDOW_ROUNDS
from fastinfer.ui.run import Baseline, Message, Phase, Tick

State = Literal["running", "done", "failed"]
Point = list[float | str]


class Recorder:
    """Turns one run into lines. Holds the running figures and nothing else."""

    def __init__(self, config: DecodeConfig) -> None:
        self._config = config
        self._stats = RunStats()
        self._elapsed_ms = 0.0
        self._gamma = 0
        self._window: deque[float] = deque(maxlen=WINDOW_ROUNDS)
        self._baseline_ms: float | None = None
        self._shown: dict[str, str] = {}

    def open(self, run_id: str, prompt: str) -> str:
        """The first lines. `run_id` differs from run to run, so the view knows a fresh start."""
        head = {"run": run_id, "prompt": prompt, "length": self._config.max_new_tokens}
        baseline = ""
        if self._config.method == "autoregressive":
            baseline = "This run is the baseline itself."
        return (
            _line(open=head)
            + _line(state="running", summary="")
            + _text({"phase": "Starting", "baseline": baseline})
        )

    def add(self, message: Message) -> str:
        """Lines for one message; may be none."""
        match message:
            case Phase():
                return _text({"phase": _phase(message)})
            case Baseline():
                return self._baseline(message)
            case Tick():
                return ""
            case Started():
                self._stats.add(message)
                return _text({"run": _run(message)})
            case Step():
                return self._step(message)
            case Compressed():
                self._stats.add(message)
                return ""
            case Finished():
                self._stats.add(message)
                return self._finished(message)
            case _:
                assert_never(message)

    def figures(self) -> str:
        """The running figures as words, once for any number of steps: those that changed."""
        words = self._words()
        changed = {place: text for place, text in words.items() if self._shown.get(place) != text}
        self._shown = words
        return _text(changed) if changed else ""

    def _words(self) -> dict[str, str]:
        stats = self._stats
        speedup = None
        if stats.tpot_ms and self._baseline_ms:
            speedup = self._baseline_ms / stats.tpot_ms
        spent_ms = stats.draft_ms + stats.verify_ms
        values = {
            "ttft": labels.milliseconds(stats.ttft_ms),
            "tpot": labels.milliseconds(stats.tpot_ms),
            "speed": labels.rate(stats.tokens_per_second),
            "speedup": labels.times(speedup),
            "length": _decimal(stats.mean_accepted_length),
            "drafting": labels.percent(stats.draft_ms / spent_ms if spent_ms else None),
            "now.gamma": str(self._gamma),
            "now.tpot": labels.milliseconds(median(self._window) if self._window else None),
        }
        for role in (Role.INTERMEDIATE, Role.TARGET):
            counts = stats.stages.get(role)
            values[f"accepted.{role}"] = labels.percent(counts.acceptance if counts else None)
        for origin in Origin:
            values[f"count.{origin}"] = f"{stats.origins[origin]:,}"
        for role, entries in stats.cache_tokens.items():
            size = labels.megabytes(stats.cache_bytes[role])
            values[f"now.{role}"] = f"{entries:,} · {size}"
        return values

    def failed(self, summary: str) -> str:
        """The last line of a run that broke."""
        return _text({"phase": summary}) + _line(state="failed", summary=summary)

    def _baseline(self, message: Baseline) -> str:
        self._baseline_ms = message.tpot_ms
        made = labels.plural(message.num_tokens, "token")
        if message.tpot_ms is None:
            return _text({"baseline": f"Baseline: none, {made} can't be timed."})
        words = (
            f"Baseline: {labels.milliseconds(message.tpot_ms)} per token, autoregressive, "
            f"same prompt, {made}, measured just before."
        )
        y = round(message.tpot_ms, 3)
        ends: list[Point] = [[BASELINE_TRACE, x, y] for x in (0, self._config.max_new_tokens)]
        return _text({"baseline": words}) + _line(points={"tpot": ends})

    def _step(self, step: Step) -> str:
        before = self._stats.num_tokens
        self._stats.add(step)
        after = self._stats.num_tokens
        points: dict[str, list[Point]] = {"cache": _cache_points(step, after)}
        if step.index > 0:  # the prefill drafts nothing, and its time is TTFT
            points["gamma"] = [[0, before, step.gamma]]
            points["tpot"] = self._tpot_points(step, after)
            self._gamma = step.gamma
        self._elapsed_ms = step.elapsed_ms
        tokens = [_token(token) for token in step.tokens]
        return _line(tokens=tokens, round=step.index, refused=_refused(step)) + _line(points=points)

    def _tpot_points(self, step: Step, x: int) -> list[Point]:
        if not step.tokens:
            return []
        per_token = (step.elapsed_ms - self._elapsed_ms) / len(step.tokens)
        self._window.append(per_token)
        return [
            [POINT_TRACE, x, round(per_token, 3)],
            [MEDIAN_TRACE, x, round(median(self._window), 3)],
        ]

    def _finished(self, event: Finished) -> str:
        stats = self._stats
        summary = (
            f"Done: {labels.plural(event.num_tokens, 'token')}, {labels.REASONS[event.reason]}."
        )
        spoken = f"{summary} {labels.milliseconds(stats.tpot_ms)} per token."
        last_step: dict[str, list[Point]] = {"gamma": [[0, stats.num_tokens, self._gamma]]}
        return (
            (_line(points=last_step) if stats.num_rounds else "")
            + _text({"phase": summary})
            + _line(state="done", summary=spoken)
        )


def _phase(phase: Phase) -> str:
    match phase.name:
        case "warm-up":
            return "Warming up, once per method"
        case "baseline":
            made = labels.plural(phase.num_tokens, "token")
            return f"Measuring the baseline: autoregressive, same prompt, {made}"
        case "decoding":
            return "Generating"


def _run(started: Started) -> str:
    rule = "" if started.method == "autoregressive" else f" · {started.rule}"
    prompt = labels.plural(started.num_prompt_tokens, "prompt token")
    return (
        f"seed {started.seed} · {started.method}{rule} · {prompt} · "
        f"{started.dtype} on {started.device}"
    )


def _token(token: Token) -> dict[str, Any]:
    """One span: text, origin, position, and the probabilities under the laws really used."""
    span: dict[str, Any] = {
        "s": token.text,
        "o": token.origin.value,
        "i": token.position,
        "p": round(token.target_prob, 4),
    }
    if token.draft_prob is not None:
        span["q"] = round(token.draft_prob, 4)
    if token.accept_prob is not None:
        span["a"] = round(token.accept_prob, 4)
    return span


def _refused(step: Step) -> list[str]:
    return [token.text for token in step.rejected]


def _cache_points(step: Step, x: int) -> list[Point]:
    return [
        [trace, x, step.cache_tokens[role], labels.megabytes(step.cache_bytes[role])]
        for trace, role in enumerate(labels.ROLE_ORDER)
        if role in step.cache_tokens
    ]


def _decimal(value: float | None) -> str:
    return labels.NOTHING if value is None else f"{value:.2f}"


def _text(values: Mapping[str, str]) -> str:
    return _line(text=dict(values))


def _line(**record: object) -> str:
    # "<" is escaped because gradio warns of a script tag in any value that seems to hold one.
    body = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return body.replace("<", "\\u003c") + "\n"
