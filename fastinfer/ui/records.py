"""Messages of a run -> lines of JSON for the stream view. Pure: no gradio, no clock, no threads.

The view only paints, so everything is decided here. Kinds of line, by their one key:
`open` a new run with the prompt to echo; `text` words for named places; `state` how the run stands;
`preview` text of the baseline, which goes when the run begins;
`event` what the engine said, to paint and to save; `points` chart points as
[trace, x, y, hover text]; `bars` heights; `law` whether the text is the target's own; `link` the
run's address.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping
from statistics import median
from typing import Any, Literal, assert_never

from fastinfer.config import DecodeConfig
from fastinfer.events import Compressed, Event, Finished, Role, Started, Step, to_json
from fastinfer.metrics import RunStats
from fastinfer.ui import labels
from fastinfer.ui.charts import (
    BASELINE_TRACE,
    MARK_TRACE,
    MEDIAN_TRACE,
    POINT_TRACE,
    UNCOMPRESSED_TRACE,
    WINDOW_ROUNDS,
)
from fastinfer.ui.figures import (
    Fullness,
    acceptance_bars,
    cost_words,
    model_words,
    speed_words,
)
from fastinfer.ui.link import write_link
from fastinfer.ui.run import Baseline, Message, Phase, Preview, Tick

State = Literal["running", "done", "failed"]
Point = list[float | str]


class Recorder:
    """Turns one run into lines. Holds the running figures and nothing else.

    `backends` says whose forward each model uses, as `EngineInfo` has it.
    """

    def __init__(self, config: DecodeConfig, backends: Mapping[Role, str] | None = None) -> None:
        self._config = config
        self._backends = backends or {}
        self._prompt = ""
        self._stats = RunStats()
        self._elapsed_ms = 0.0
        self._gamma = 0
        self._window: deque[float] = deque(maxlen=WINDOW_ROUNDS)
        self._baseline_ms: float | None = None
        self._dropped: Counter[Role] = Counter()  # entries that presses took, per layer
        self._shown: dict[str, str] = {}
        self._bars: dict[str, Any] = {}

    def open(self, run_id: str, prompt: str) -> str:
        """The first lines. `run_id` differs from run to run, so the view knows a fresh start."""
        self._prompt = prompt
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
            case Preview():
                return self._preview(message)
            case Tick():
                return ""
            case Started():
                return self._started(message)
            case Step():
                return self._step(message)
            case Compressed():
                return self._compressed(message)
            case Finished():
                return self._finished(message)
            case _:
                assert_never(message)

    def figures(self) -> str:
        """The running figures, once for any number of steps: those that changed."""
        words = self._words()
        changed = {place: text for place, text in words.items() if self._shown.get(place) != text}
        self._shown = words
        bars = acceptance_bars(self._stats)
        fresh = {role: heights for role, heights in bars.items() if self._bars.get(role) != heights}
        self._bars = bars
        return (_text(changed) if changed else "") + (_line(bars=fresh) if fresh else "")

    def failed(self, summary: str) -> str:
        """The last line of a run that broke."""
        return _text({"phase": summary}) + _line(state="failed", summary=summary)

    def _words(self) -> dict[str, str]:
        role = self._pressed_role()
        fullness = None
        if role is not None and role in self._stats.cache_tokens:
            entries = self._stats.cache_tokens[role]
            fullness = Fullness(entries=entries, uncompressed=entries + self._dropped[role])
        now = {
            "now.gamma": str(self._gamma),
            "now.tpot": labels.milliseconds(median(self._window) if self._window else None),
        }
        return (
            speed_words(self._stats, self._baseline_ms)
            | cost_words(self._stats, self._baseline_ms, fullness)
            | now
        )

    def _pressed_role(self) -> Role | None:
        """The largest model whose cache a press acts on."""
        pressed = (role for role in labels.ROLE_ORDER if self._config.compression_of(role))
        in_use = self._stats.started.models if self._stats.started else {}
        return next((role for role in pressed if role in in_use), None)

    def _preview(self, message: Preview) -> str:
        text = _line(preview=message.text)
        if message.tpot_ms is None:
            return text
        return text + _baseline_point(message.num_tokens, message.tpot_ms)

    def _baseline(self, message: Baseline) -> str:
        self._baseline_ms = message.tpot_ms
        made = labels.plural(message.num_tokens, "token")
        if message.tpot_ms is None:
            return _text({"baseline": f"Baseline: none, {made} can't be timed."})
        words = (
            f"Baseline: {labels.milliseconds(message.tpot_ms)} per token, autoregressive, "
            f"same prompt, {made}, measured just before."
        )
        end = _baseline_point(self._config.max_new_tokens, message.tpot_ms)
        return _text({"baseline": words}) + end

    def _started(self, started: Started) -> str:
        self._stats.add(started)
        # With the seed that was really used, so that the link gives this run again.
        options = self._config.to_mapping() | {"seed": started.seed}
        law, icon = ("lossless", "✓ Lossless") if started.lossless else ("lossy", "⚠ Lossy")
        words = {"run": _run(started), "law": icon, "law.reason": started.lossless_reason}
        return (
            _text(words | model_words(started, self._backends))
            + _line(law=law)
            + _line(link=write_link(self._prompt, options))
            + _event(started)
        )

    def _step(self, step: Step) -> str:
        before = self._stats.num_tokens
        self._stats.add(step)
        after = self._stats.num_tokens
        points: dict[str, list[Point]] = {"cache": self._cache_points(step, after)}
        if step.index > 0:  # the prefill drafts nothing, and its time is TTFT
            points["gamma"] = [[0, before, step.gamma]]
            points["tpot"] = self._tpot_points(step, after)
            self._gamma = step.gamma
        self._elapsed_ms = step.elapsed_ms
        return _event(step) + _line(points=points)

    def _tpot_points(self, step: Step, x: int) -> list[Point]:
        if not step.tokens:
            return []
        per_token = (step.elapsed_ms - self._elapsed_ms) / len(step.tokens)
        self._window.append(per_token)
        return [
            [POINT_TRACE, x, round(per_token, 3)],
            [MEDIAN_TRACE, x, round(median(self._window), 3)],
        ]

    def _cache_points(self, step: Step, x: int) -> list[Point]:
        points: list[Point] = [
            [trace, x, step.cache_tokens[role], labels.megabytes(step.cache_bytes[role])]
            for trace, role in enumerate(labels.ROLE_ORDER)
            if role in step.cache_tokens
        ]
        role = self._pressed_role()
        if role is not None and step.cache_tokens.get(role):
            entries = step.cache_tokens[role]
            whole = entries + self._dropped[role]
            size = labels.megabytes(step.cache_bytes[role] * whole // entries)
            points.append([UNCOMPRESSED_TRACE, x, whole, f"{size} ({role})"])
        return points

    def _compressed(self, event: Compressed) -> str:
        """The line falls where it happened, and a mark says how far."""
        self._stats.add(event)
        self._dropped[event.role] += event.entries_before - event.entries_after
        x = self._stats.num_tokens
        before, after = labels.megabytes(event.bytes_before), labels.megabytes(event.bytes_after)
        words = (
            f"{event.role}: {event.entries_before:,} → {event.entries_after:,} entries, "
            f"{before} → {after}"
        )
        trace = labels.ROLE_ORDER.index(event.role)
        points: list[Point] = [
            [trace, x, event.entries_after, after],
            [MARK_TRACE, x, event.entries_after, words],
        ]
        return _event(event) + _line(points={"cache": points})

    def _finished(self, event: Finished) -> str:
        self._stats.add(event)
        stats = self._stats
        summary = (
            f"Done: {labels.plural(event.num_tokens, 'token')}, {labels.REASONS[event.reason]}."
        )
        spoken = f"{summary} {labels.milliseconds(stats.tpot_ms)} per token."
        last_step: dict[str, list[Point]] = {"gamma": [[0, stats.num_tokens, self._gamma]]}
        return (
            (_line(points=last_step) if stats.num_rounds else "")
            + _event(event)
            + _text({"phase": summary})
            + _line(state="done", summary=spoken)
        )


def saved(event: Event) -> dict[str, Any]:
    """An event as a saved run holds it: without what nobody asked for, and without false digits.

    Probabilities and times have six decimals. `logprob` and `alternatives` are there where the
    request asked for them.
    """
    kept: dict[str, Any] = _rounded(to_json(event))
    for name in ("tokens", "rejected"):
        for token in kept.get(name, ()):
            if token["logprob"] is None:
                del token["logprob"], token["alternatives"]
    return kept


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {str(key): _rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
    return value


def _phase(phase: Phase) -> str:
    match phase.name:
        case "warm-up":
            return "Warming up, once per method"
        case "baseline":
            made = labels.plural(phase.num_tokens, "token")
            return f"Measuring the baseline: autoregressive, same prompt, up to {made}"
        case "decoding":
            return "Generating"


def _run(started: Started) -> str:
    rule = "" if started.method == "autoregressive" else f" · {started.rule}"
    prompt = labels.plural(started.num_prompt_tokens, "prompt token")
    return f"{started.method}{rule} · seed {started.seed} · {prompt}"


def _baseline_point(x: int, tpot_ms: float) -> str:
    return _line(points={"tpot": [[BASELINE_TRACE, x, round(tpot_ms, 3)]]})


def _event(event: Event) -> str:
    return _line(event=saved(event))


def _text(values: Mapping[str, str]) -> str:
    return _line(text=dict(values))


def _line(**record: object) -> str:
    # "<" is escaped because gradio warns of a script tag in any value that seems to hold one.
    body = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return body.replace("<", "\\u003c") + "\n"
