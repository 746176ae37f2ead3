"""A benchmark's document as an aligned table for people: pure text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]

NOTES = {
    "autoregressive-uncached": "autoregressive-uncached reads the whole sequence again for every "
    "token; it is no fair baseline, only what some projects call one",
    "flashspec": "flashspec gives no token before its call ends; its times are those that it "
    "reports for its steps",
}


def rows(document: Result) -> tuple[list[str], list[list[str]]]:
    """The heads and one row per contender."""
    results: Mapping[str, Result] = document["results"]
    cells = [[name, *(cell(result) for _, cell in COLUMNS)] for name, result in results.items()]
    return ["", *(head for head, _ in COLUMNS)], cells


def table(document: Result) -> str:
    """The rows aligned, with what they were measured on above and remarks below."""
    heads, cells = rows(document)
    details = [*drafting(document), "", *remarks(document)]
    text = aligned(heads, cells)
    return "\n".join([setting(document), "", text, "", *details, ""])


def aligned(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Columns of one width each; the first to the left, the others to the right."""
    lines = [heads, *cells]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def setting(document: Result) -> str:
    """What was measured, on what."""
    plan, where = document["plan"], document["environment"]
    processor = f"{where['processor']}, {where['threads']} threads"
    device = processor if document["device"] == "cpu" else where["gpu"] or document["device"]
    models = ", ".join(f"{role} {name}" for role, name in document["models"].items())
    lengths = sorted(set(plan["prompts"].values()))
    prompt = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    return (
        f"{models}\n{device}, {document['dtype']}; {len(plan['prompts'])} prompts of {prompt} "
        f"tokens, {plan['max_new_tokens']} new tokens, temperature {plan['temperature']:g}, "
        f"{plan['repeats']} repeats; medians, in [] quartiles"
    )


def drafting(document: Result) -> list[str]:
    """Acceptance by stage and position, and v(gamma), of the methods that drafted."""
    lines = []
    for name, result in document["results"].items():
        for role, stage in result.get("stages", {}).items():
            if stage["acceptance"] is None:
                continue
            shares = " ".join(f"{share:.2f}" for share in stage["acceptance_by_position"])
            lines.append(
                f"{name}: the {role} accepted {stage['acceptance']:.0%}; by position {shares}"
            )
        if "v" in result:
            times = ", ".join(f"{size}: {v:.2f}" for size, v in result["v"].items())
            lines.append(f"{name}: v(gamma), in plain steps: {times}")
    return lines


def remarks(document: Result) -> list[str]:
    """What a reader must know beside the figures."""
    names = document["results"]
    lines = [*document["notes"], *(note for name, note in NOTES.items() if name in names)]
    losers = [
        name
        for name, result in names.items()
        if "c" in result and result.get("achieved_speedup", 1.0) < 1.0
    ]
    if losers:
        lines.append(f"slower than plain decoding here: {', '.join(losers)}")
    lossy = [name for name, result in names.items() if not result.get("lossless", True)]
    if lossy:
        lines.append(f"lossy, a press drops entries of the target's own cache: {', '.join(lossy)}")
    if document["plan"]["temperature"] == 0 and document["dtype"] != "float32":
        lines.append(
            "greedy texts are only sure to be equal in float32: other dtypes round differently in "
            "blocks of different sizes"
        )
    return lines


def _number(form: str, key: str) -> Callable[[Result], str]:
    def cell(result: Result) -> str:
        value = result.get(key)
        return "-" if value is None else form.format(value)

    return cell


def _spread(form: str, key: str) -> Callable[[Result], str]:
    def cell(result: Result) -> str:
        if key not in result:
            return "-"
        q1, median, q3 = (form.format(result[key][name]) for name in ("q1", "median", "q3"))
        return f"{median} [{q1}, {q3}]"

    return cell


def _same_text(result: Result) -> str:
    if "greedy_equal_runs" not in result:
        return "-"
    return f"{result['greedy_equal_runs']}/{len(result['greedy_first_difference'])}"


def _kv(result: Result) -> str:
    held = result.get("kv_bytes")
    return "-" if not held else f"{sum(held.values()) / 1e6:.1f}"


def _memory(result: Result) -> str:
    value = result["memory_bytes"]
    return "-" if value is None else f"{value / 1e6:.1f}"


COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("TTFT ms", _spread("{:.1f}", "ttft_ms")),
    ("TPOT ms", _spread("{:.2f}", "tpot_ms")),
    ("tok/s", _number("{:.1f}", "tokens_per_second")),
    ("TPOT ratio", _spread("{:.2f}", "tpot_ratio_to_autoregressive")),
    ("predicted", _number("{:.2f}x", "predicted_speedup")),
    ("achieved", _number("{:.2f}x", "achieved_speedup")),
    ("accepted", _number("{:.2f}", "mean_accepted_length")),
    ("c", _number("{:.3f}", "c")),
    ("same text", _same_text),
    ("KV MB", _kv),
    ("memory MB", _memory),
)
