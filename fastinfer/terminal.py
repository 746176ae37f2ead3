"""Events as a terminal shows them: text marked by origin, a legend, a table of figures.

Pure functions from values to text; only `cli.py` prints. Text from a model is untrusted: what goes
to a terminal passes through `visible` first, so that no escape sequence of a model's acts there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fastinfer.events import Origin, Role, Started
from fastinfer.metrics import RunStats, StageCounts


class Style(StrEnum):
    """How origins are marked."""

    PLAIN = "plain"  # not at all
    LETTERS = "letters"  # [d:text], for NO_COLOR
    COLOURS_256 = "256"
    TRUE_COLOURS = "true"


@dataclass(frozen=True, kw_only=True)
class Look:
    """One origin: its letter, its colour, what it says in the legend."""

    letter: str
    rgb: tuple[int, int, int]
    ansi: int  # the nearest of the 256 colours
    meaning: str


# Okabe and Ito's palette, made to be told apart by colour-blind eyes; black text reads on all five.
LOOKS: Mapping[Origin, Look] = {
    Origin.DRAFT: Look(
        letter="d",
        rgb=(0x56, 0xB4, 0xE9),
        ansi=74,
        meaning="drafted and accepted by every verifier",
    ),
    Origin.INTERMEDIATE: Look(
        letter="i",
        rgb=(0xF0, 0xE4, 0x42),
        ansi=221,
        meaning="the intermediate's own, accepted by the target",
    ),
    Origin.RESAMPLED: Look(
        letter="r",
        rgb=(0xD5, 0x5E, 0x00),
        ansi=166,
        meaning="the target's correction after a rejection",
    ),
    Origin.BONUS: Look(
        letter="b",
        rgb=(0xCC, 0x79, 0xA7),
        ansi=175,
        meaning="the target's free token after a whole block was accepted",
    ),
    Origin.TARGET: Look(
        letter="t", rgb=(0x00, 0x9E, 0x73), ansi=36, meaning="a plain step of the target"
    ),
}

_RESET = "\x1b[0m"

# C0 controls and DEL as Unicode's control pictures, C1 controls as \x9b. Line break and tab stay.
_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
}


def visible(text: str) -> str:
    """The text with every control character but line break and tab made a visible one."""
    return text.translate(_VISIBLE)


def style_for(verbose: bool, environ: Mapping[str, str]) -> Style:
    """Without -v plain; with it colours, or letters where NO_COLOR asks for none."""
    if not verbose:
        return Style.PLAIN
    if environ.get("NO_COLOR"):
        return Style.LETTERS
    if environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return Style.TRUE_COLOURS
    return Style.COLOURS_256


def mark(text: str, origin: Origin, style: Style) -> str:
    """The text of one token, marked. No marks around nothing."""
    if style is Style.PLAIN or not text:
        return text
    look = LOOKS[origin]
    shown = visible(text)
    if style is Style.LETTERS:
        return f"[{look.letter}:{shown}]"
    if style is Style.TRUE_COLOURS:
        start = "\x1b[38;2;0;0;0;48;2;{};{};{}m".format(*look.rgb)
    else:
        start = f"\x1b[38;5;16;48;5;{look.ansi}m"
    # A colour left open over a line break would fill the rest of the line.
    return "\n".join(f"{start}{line}{_RESET}" if line else "" for line in shown.split("\n"))


def legend(started: Started, style: Style) -> str:
    """One line for each origin that the method can give."""
    absent: set[Origin] = set()
    if started.method == "autoregressive":
        absent = set(Origin) - {Origin.TARGET}
    elif started.method != "cascade":
        absent = {Origin.INTERMEDIATE}
    return "".join(
        f"{mark(origin.value, origin, style)}{' ' * (14 - len(origin.value))}{look.meaning}\n"
        for origin, look in LOOKS.items()
        if origin not in absent
    )


def table(stats: RunStats) -> str:
    """The figures of a run, one a line, labels aligned."""
    rows = [
        ("tokens", _tokens(stats)),
        ("TTFT", _figure(stats.ttft_ms, "{:.1f} ms")),
        ("TPOT", _figure(stats.tpot_ms, "{:.2f} ms a token")),
        ("speed", _figure(stats.tokens_per_second, "{:.1f} tok/s after the first token")),
        ("mean accepted", _figure(stats.mean_accepted_length, "{:.2f} tokens a target pass")),
        *_acceptance(stats),
        ("time", f"drafting {stats.draft_ms:.1f} ms, verifying {stats.verify_ms:.1f} ms"),
        ("origins", _origins(stats)),
        ("KV cache", _cache(stats)),
        ("compressed", _compressions(stats)),
        ("against full", _shadow(stats)),
        *_request(stats.started),
    ]
    width = max(len(label) for label, _ in rows)
    return "".join(f"{label:<{width}}  {value}\n" for label, value in rows if value)


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _tokens(stats: RunStats) -> str:
    ended = f", ended by {stats.finished.reason}" if stats.finished else ", interrupted"
    passes = "pass" if stats.num_rounds == 1 else "passes"
    return f"{stats.num_tokens}: prefill, then {stats.num_rounds} target {passes}{ended}"


def _acceptance(stats: RunStats) -> list[tuple[str, str]]:
    if stats.started is not None and stats.started.method == "autoregressive":
        return []
    rows = []
    for role, counts in stats.stages.items():
        rows.append(("accepted", f"by the {role.value}: {_stage(counts)}"))
        if counts.acceptance is not None:
            shares = " ".join(f"{share:.2f}" for share in counts.acceptance_by_position)
            rows.append(("  by position", shares))
    return rows


def _stage(counts: StageCounts) -> str:
    if counts.acceptance is None:
        return "nothing was drafted"
    of = f"{counts.num_accepted} of {counts.num_tested} tested"
    return f"{counts.acceptance:.0%} ({of}, {counts.num_drafted} drafted)"


def _origins(stats: RunStats) -> str:
    return ", ".join(f"{name.value} {n}" for name in Origin if (n := stats.origins[name]))


def _cache(stats: RunStats) -> str:
    return ", ".join(
        f"{role.value} {stats.cache_tokens[role]} entries {_megabytes(stats, role)}"
        for role in Role
        if role in stats.cache_tokens
    )


def _megabytes(stats: RunStats, role: Role) -> str:
    live = f"{stats.cache_bytes[role] / 1e6:.2f} MB"
    if role not in stats.cache_allocated:
        return live
    return f"{live} ({stats.cache_allocated[role] / 1e6:.2f} MB allocated)"


def _compressions(stats: RunStats) -> str:
    if not stats.compressions:
        return ""
    times = ", ".join(f"{role.value} {n} times" for role, n in stats.compressions.items())
    return f"{times}, {stats.compress_ms:.1f} ms"


def _shadow(stats: RunStats) -> str:
    shadow = stats.shadow
    if shadow is None:
        return ""
    return (
        f"KL {shadow.kl_nats:.4f} nats, same first choice {shadow.top1_agreement:.1%}, "
        f"over {shadow.num_positions} positions"
    )


def _request(started: Started | None) -> list[tuple[str, str]]:
    if started is None:
        return []
    lossless = f"{'yes' if started.lossless else 'no'}: {started.lossless_reason}"
    return [
        ("lossless", lossless),
        ("method", f"{started.method}, {started.rule} rule"),
        ("models", ", ".join(f"{role.value} {name}" for role, name in started.models.items())),
        ("run on", f"{started.device}, {started.dtype}"),
        ("seed", str(started.seed)),
    ]
