"""A comparison -> what the compare view shows, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastinfer.evaluation.comparison import Against, Compared, Progress, Recording
from fastinfer.evaluation.parting import Parting
from fastinfer.ui import labels
from fastinfer.ui.report import Tone, shown, view_json

INTRO = (
    "The same prompt goes through both, one after the other on the same device; then both are "
    "replayed side by side on one time axis."
)
LETTERS = "ABC"
LINES = ("var(--fi-line-target)", "var(--fi-line-draft)", "var(--fi-line-intermediate)")


@dataclass(frozen=True, kw_only=True)
class Result:
    """A comparison's end. One explanation per column after the first, None where none is needed;
    `texts` are the two tokens of each explanation."""

    prompt: str
    compared: Compared
    partings: tuple[Parting | None, ...]
    texts: tuple[tuple[str, str], ...]
    dtype: str
    device: str


def opening() -> str:
    """The view before anything ran."""
    return view_json({"state": "idle", "title": "Two ways to the same text", "detail": INTRO})


def running(progress: Progress) -> str:
    """While runs go on."""
    if progress.column is None:
        title, share = "Warming up, once per method", 0.0
    else:
        made = labels.plural(progress.num_tokens, "token")
        title = f"Run {progress.done + 1} of {progress.total}: {progress.column}, {made}"
        share = progress.done / progress.total
    return view_json({"state": "running", "title": title, "detail": ALONE, "progress": share})


ALONE = "One after the other, each with the device to itself"


def failed(words: str) -> str:
    """The end of a comparison that broke."""
    return view_json({"state": "failed", "title": words, "detail": ""})


def finished(result: Result) -> str:
    """The replay, with every column's figures."""
    compared = result.compared
    columns = [
        _column(index, result, recording) for index, recording in enumerate(compared.recordings)
    ]
    speed = _speed(compared)
    verdicts = [
        _text_verdict(index, result, against)
        for index, against in enumerate(compared.against, start=1)
    ]
    record = {
        "state": "done",
        "title": f"Replay of {'both' if len(columns) == 2 else 'all'} runs, on one time axis",
        "detail": f"{ALONE} · {result.dtype} on {result.device}",
        "prompt": result.prompt,
        "verdicts": [speed, *verdicts],
        "columns": columns,
        "end_ms": max(recording.steps[-1].elapsed_ms for recording in compared.recordings),
    }
    return view_json(record)


def _column(index: int, result: Result, recording: Recording) -> dict[str, Any]:
    stats = recording.stats
    against = None if index == 0 else result.compared.against[index - 1]
    cache = recording.steps[-1].cache_bytes
    parts = " + ".join(f"{role} {labels.megabytes(size)}" for role, size in cache.items())
    facts = [
        ["First token", labels.milliseconds(stats.ttft_ms)],
        ["Per token", labels.milliseconds(stats.tpot_ms)],
        ["Decoding", labels.milliseconds(recording.decode_ms)],
        ["Target passes", f"{stats.num_rounds:,}"],
        ["Tokens a pass", "–" if against is None else f"{stats.mean_accepted_length:.2f}"],
        ["KV caches", labels.megabytes(recording.cache_bytes)],
    ]
    return {
        "name": result.compared.columns[index].name,
        "color": LINES[index],
        "speedup": None if against is None else _median(against),
        "lossless": recording.lossless,
        "facts": facts,
        "cache": parts,
        "first_difference": None if against is None else against.first_difference,
        "tokens": [
            [token.text, token.origin.value, round(step.elapsed_ms, 2)]
            for step in recording.steps
            for token in step.tokens
        ],
    }


def _median(against: Against) -> str:
    return labels.times(against.speedup["median"])


def _speed(compared: Compared) -> dict[str, str]:
    """The headline: each column's ratio of decode times to the first."""
    parts = []
    for against, column in zip(compared.against, compared.columns[1:], strict=True):
        ratio = against.speedup
        words = f"{column.name}: {_median(against)} the speed of {compared.columns[0].name}"
        if compared.repeats > 1:
            words += f" [{labels.times(ratio['q1'])} to {labels.times(ratio['q3'])}]"
        parts.append(words)
    how = (
        f"Median and quartiles of {compared.repeats} paired runs, order alternated; the replay "
        "shows a run in the middle."
        if compared.repeats > 1
        else "One paired run; press “Again ×5” for a median with its spread."
    )
    return _verdict("plain", "; ".join(parts), f"Ratio of decode times per token. {how}")


def _text_verdict(index: int, result: Result, against: Against) -> dict[str, str]:
    """Whether the texts are the same, and if not, why."""
    compared = result.compared
    column, recording = compared.columns[index], compared.recordings[index]
    pair = f"{LETTERS[0]} and {LETTERS[index]}"
    if against.first_difference is None:
        made = labels.plural(recording.stats.num_tokens, "token")
        return _verdict("good", f"{pair} gave the same text", f"All {made}, one by one.")
    place = against.first_difference + 1
    head = f"{pair} part at token {place:,}"
    if not column.config.lossless:
        return _verdict("bad", head, f"Lossy: {column.config.lossless_reason}.")
    parting = result.partings[index - 1]
    if parting is None:
        return _verdict("plain", head, _unexplained(column.config.rule))
    return _parted(head, parting, result.texts[index - 1], result.dtype)


def _unexplained(rule: str) -> str:
    if rule == "coupled":
        return "One of them is longer."
    return (
        "The residual rule spends its random numbers otherwise for each method. Both texts follow "
        "the target's law; the coupled rule makes them the same."
    )


def _parted(head: str, parting: Parting, texts: Sequence[str], dtype: str) -> dict[str, str]:
    first, second = texts
    scores = (
        f"The target scores {shown(first)} {parting.scores[0]:.4f} and "
        f"{shown(second)} {parting.scores[1]:.4f} there. "
    )
    if parting.within_rounding:
        return _verdict(
            "plain",
            f"{head}, where two tokens are as good as equal",
            f"{scores}Over several ways of reading the same text the two come within "
            f"{parting.gap:.2g}, and rounding in {dtype} moves them by up to "
            f"{parting.rounding:.2g}.",
        )
    return _verdict(
        "bad", f"{head}, and rounding does not explain it",
        f"{scores}However the text is read they stay {parting.gap:.2g} apart, while rounding in "
        f"{dtype} moves them by {parting.rounding:.2g} at most. Please report this.",
    )  # fmt: skip


def _verdict(tone: Tone, text: str, more: str) -> dict[str, str]:
    return {"tone": tone, "text": text, "more": more}
