"""Words and numbers as the page writes them. Every unit is written here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

from fastinfer.events import FinishReason, Origin, Role

NOTHING = "–"


@dataclass(frozen=True)
class Label:
    """What a thing is called, and one line of help."""

    name: str
    help: str


ORIGIN_LABELS: dict[Origin, Label] = {
    Origin.DRAFT: Label("draft", "Drafted by the small model, accepted by every verifier."),
    Origin.INTERMEDIATE: Label(
        "intermediate", "The middle model's own token, accepted by the target."
    ),
    Origin.RESAMPLED: Label("resampled", "The target's correction after it refused a draft."),
    Origin.BONUS: Label("bonus", "The target's free token after a fully accepted block."),
    Origin.TARGET: Label("target", "A plain step of the target: nothing was drafted."),
}

FIELD_LABELS = {
    "prompt": "Prompt",
    "method": "Method",
    "draft": "Draft",
    "rule": "Acceptance rule",
    "gamma_policy": "γ policy",
    "gamma": "γ",
    "gamma_min": "Least γ",
    "gamma_max": "Most γ",
    "gamma_threshold": "Threshold",
    "inner_gamma": "Inner γ",
    "rounds": "Inner rounds",
    "max_new_tokens": "New tokens",
    "temperature": "Temperature",
    "top_k": "Top-k",
    "top_p": "Top-p",
    "min_p": "Min-p",
    "typical_p": "Typical",
    "repetition_penalty": "Repetition penalty",
    "seed": "Seed",
    "stop": "Stop texts",
}

METHOD_LABELS = {
    "autoregressive": "Autoregressive: the target alone",
    "speculative": "Speculative: draft, then target",
    "cascade": "Cascade: draft, intermediate, target",
}

FIGURE_LABELS: dict[str, Label] = {
    "ttft": Label("First token", "TTFT: time to the first token; reading the prompt is in it."),
    "tpot": Label("Per token", "TPOT: decode time per token after the first."),
    "speed": Label("Speed", "Tokens per second while decoding: 1 / TPOT."),
    "speedup": Label(
        "Against baseline",
        "Baseline TPOT / this TPOT. Below 1× the method costs more than it saves.",
    ),
    "length": Label(
        "Tokens per pass", "Mean accepted length: tokens committed per pass of the target."
    ),
    "accepted.intermediate": Label(
        "Intermediate accepts", "Accepted / tested where the intermediate model verifies."
    ),
    "accepted.target": Label("Target accepts", "Accepted / tested where the target verifies."),
    "drafting": Label("Time drafting", "Share of the decode time spent on drafting."),
}

REASONS: dict[FinishReason, str] = {
    "eos": "the text ended",
    "stop": "a stop text came",
    "length": "limit reached",
    "context": "context full",
    "time": "time limit reached",
}

ROLE_ORDER = (Role.TARGET, Role.INTERMEDIATE, Role.DRAFT)


def field_name(field: str) -> str:
    """How the page speaks of a field: `Temperature`, `Least γ (gamma_min)`."""
    label = FIELD_LABELS.get(field, field)
    same = label.casefold().replace("-", "_").replace(" ", "_") == field
    return label if same else f"{label} ({field})"


def milliseconds(value: float | None) -> str:
    """`34 ms`, `3.4 ms` or `2.10 s`."""
    if value is None:
        return NOTHING
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms"


def percent(value: float | None) -> str:
    """`61 %`."""
    return NOTHING if value is None else f"{100 * value:.0f} %"


def rate(value: float | None) -> str:
    """`80.6 tok/s`, `1,250 tok/s`."""
    if value is None:
        return NOTHING
    return f"{value:.1f} tok/s" if value < 100 else f"{value:,.0f} tok/s"


def times(value: float | None) -> str:
    """`1.62×`."""
    return NOTHING if value is None else f"{value:.2f}×"


def megabytes(num_bytes: int) -> str:
    """`2.40 MB`, a million bytes each."""
    return f"{num_bytes / 1e6:.2f} MB"


def plural(number: int, word: str) -> str:
    """`1 token`, `2 tokens`, `1,500 tokens`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
