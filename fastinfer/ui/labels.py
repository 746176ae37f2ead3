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

# Words of the form: a field's name and one line of help. `words.py` has them in Chinese.
FIELD_WORDS: dict[str, Label] = {
    "prompt": Label("Prompt", "The models continue it; they don't answer it."),
    "method": Label("Method", "With the whole cache, all give text of the target's own law."),
    "draft": Label("Draft", "A small model, text found earlier, both, or the target over a cache."),
    "intermediate": Label("Intermediate", "Cascade only: a model, or the target over a cache."),
    "rule": Label(
        "Acceptance rule", "Coupled: one seed gives one text, whatever drafts and however γ moves."
    ),
    "gamma_policy": Label("γ policy", "cost_aware drafts as long as it pays."),
    "gamma": Label("γ", "Per round."),
    "gamma_min": Label("Least γ", "Empty: policy's."),
    "gamma_max": Label("Most γ", "Up to 64."),
    "gamma_threshold": Label("Threshold", "Confidence only."),
    "inner_gamma": Label("Inner γ", "Cascade only."),
    "rounds": Label("Inner rounds", "Cascade only."),
    "max_new_tokens": Label("New tokens", "At most."),
    "temperature": Label("Temperature", "0 is greedy."),
    "top_k": Label("Top-k", "0 is off."),
    "top_p": Label("Top-p", "1 is off."),
    "min_p": Label("Min-p", "0 is off."),
    "typical_p": Label("Typical", "1 is off."),
    "repetition_penalty": Label("Repetition penalty", "1 is off."),
    "seed": Label("Seed", "Empty: fresh."),
    "stop": Label(
        "Stop texts", r"One a line; \n is a line break. The first to appear ends the run."
    ),
    "press": Label(
        "Press", "Picks the entries to keep: after the prompt, or every so many tokens."
    ),
    "compression_ratio": Label("Ratio", "Removed."),
    "max_cache_tokens": Label("Budget", "Or entries."),
    "press_interval": Label("Interval", "Or once."),
    "press_on": Label("Acts on", "On the target it changes the text; elsewhere only the speed."),
    "press_positions": Label("Positions", "in_cache lets a text outgrow the model's context."),
    "press_sinks": Label("Sinks", "Always kept."),
    "shadow_every": Label("Shadow meter", "Every n rounds; 0 is off."),
}
FIELD_LABELS: dict[str, str] = {name: label.name for name, label in FIELD_WORDS.items()}

# The same for the measuring tabs, which share the words above where they ask the same.
TAB_WORDS: dict[str, Label] = {
    "compare_rule": Label(
        "Acceptance rule", "Coupled: one text in every column, at any temperature."
    ),
    "kind": Label("Method", ""),
    "kind_b": Label("B: method", "A is the baseline: the target alone."),
    "kind_c": Label("C: method", ""),
    "kind_press": Label("Press", "A smaller KV cache for one model."),
    "kind_press_on": Label("Acts on", ""),
    "kind_ratio": Label("Share removed", ""),
    "kind_more": Label("Other options", "One a line, by their names on the command line."),
    "draws": Label("Draws", ""),
    "wrong": Label(
        "Use a wrong rule",
        "After a rejection it draws from the target's law in place of the residual.",
    ),
    "presses": Label("Presses", ""),
    "ratios": Label("Share of the cache removed", ""),
    "file": Label("Another text (.txt or .md)", ""),
    "window": Label("Window", "Tokens."),
    "windows": Label("Windows", "At most."),
    "every": Label("Press every", "Tokens."),
    "methods": Label("Methods", ""),
    "prompts": Label("Prompts", ""),
    "lead": Label("Prompt tokens", "At most."),
    "exactly": Label("New tokens", "Exactly."),
    "repeats": Label("Repeats", ""),
    "bench_more": Label(
        "Other options", "One a line, for all methods, by their names on the command line."
    ),
    "preset": Label("Preset", "Downloaded where it is not here yet."),
}

GROUPS = {
    "drafting": "Drafting",
    "sampling": "More sampling and stop texts",
    "cache": "KV cache",
    "examples": "Examples",
    "third": "C: a third column",
    "generate": "Generate",
    "compare": "Compare",
    "again": "Again ×5",
    "prove": "Prove it",
    "measure": "Measure",
    "load": "Load",
    "stop_run": "Stop",
    "tab_generate": "Generate",
    "tab_compare": "Compare",
    "tab_proof": "Prove it",
    "tab_quality": "Quality",
    "tab_benchmark": "Benchmark",
    "tab_models": "Models",
    "intro": (
        "Small models guess ahead, a larger one checks, and the text keeps the larger one's law."
    ),
}

# Choices of radios and dropdowns that are words; others are names of the command line.
CHOICES = {
    "method_autoregressive": "Autoregressive: the target alone",
    "method_speculative": "Speculative: draft, then target",
    "method_cascade": "Cascade: draft, intermediate, target",
    "kind_autoregressive": "Autoregressive",
    "kind_speculative": "Speculative",
    "kind_prompt-lookup": "Prompt lookup",
    "kind_lookup-first": "Lookup, then draft",
    "kind_cascade": "Cascade",
    "kind_none": "No third column",
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

# The smaller figures, under the charts.
COST_LABELS: dict[str, Label] = {
    "c": Label("Drafted token costs (c)", "Its time in plain steps of the target."),
    "predicted": Label(
        "Predicted speed-up",
        "From c and the acceptance: tokens that such blocks commit, per time that they take.",
    ),
    "achieved": Label("Achieved speed-up", "Baseline TPOT / this TPOT."),
    "kept": Label("Cache kept", "Entries held / entries without a press."),
    "shadow.kl": Label(
        "KL from full cache",
        "KL(full cache || compressed cache), mean over compared positions.",
    ),
    "shadow.top1": Label(
        "Same likeliest token", "Share of compared positions where full and compressed cache agree."
    ),
}

BACKENDS = {"fastinfer": "own decoder", "transformers": "transformers"}

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


def nats(value: float | None) -> str:
    """`0.0123 nats`."""
    return NOTHING if value is None else f"{value:.4f} nats"


def decimal(value: float | None, digits: int = 2) -> str:
    """`3.41`."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def plural(number: int, word: str) -> str:
    """`1 token`, `2 tokens`, `1,500 tokens`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
