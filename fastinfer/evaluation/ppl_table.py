"""The document of `ppl` as an aligned table for people: pure text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastinfer.evaluation.press_grid import against_random
from fastinfer.evaluation.table import aligned

Result = Mapping[str, Any]


def rows(document: Result) -> tuple[list[str], list[list[str]]]:
    """The heads and one row per variant."""
    results: Mapping[str, Result] = document["results"]
    shown = {head: [cell(result) for result in results.values()] for head, cell in COLUMNS.items()}
    kept = {head: cells for head, cells in shown.items() if any(cell != "-" for cell in cells)}
    lines = zip(results, *kept.values(), strict=True)
    return ["", *kept], [list(line) for line in lines]


def table(document: Result) -> str:
    """The rows aligned, with what they were measured on above and remarks below."""
    heads, cells = rows(document)
    return "\n".join([setting(document), "", aligned(heads, cells), "", *remarks(document), ""])


def setting(document: Result) -> str:
    """What was measured, on what."""
    plan, where, corpus = document["plan"], document["environment"], document["corpus"]
    processor = f"{where['processor']}, {where['threads']} threads"
    device = processor if document["device"] == "cpu" else where["gpu"] or document["device"]
    first = next(iter(document["results"].values()))
    when = (
        "after the first part only"
        if plan["interval"] is None
        else f"after the first part and every {plan['interval']} tokens"
    )
    presses = f"; presses act {when}, positions {plan['positions']}" if plan["presses"] else ""
    return (
        f"{document['role']} {document['model']}\n{device}, {document['dtype']}\n"
        f"{corpus['name']}: {first['tokens']} tokens ({first['bytes']} bytes) counted in "
        f"{first['windows']} windows of {plan['context']}, the last {plan['stride']} of each"
        f"{presses}"
    )


def remarks(document: Result) -> list[str]:
    """What a reader must know beside the figures."""
    lines = list(document["notes"])
    worse, undecided = against_random(document["results"])
    if worse:
        lines.append(f"worse than random by two standard errors: {', '.join(worse)}")
    if undecided:
        lines.append(f"neither better nor worse by as much: {', '.join(undecided)}")
    lines.append(
        "intervals take windows for independent; neighbours are alike, so they are rather wider"
    )
    return lines


def _number(form: str, *keys: str, scale: float = 1.0) -> Callable[[Result], str]:
    def cell(result: Result) -> str:
        value: Any = result
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return "-" if value is None else form.format(value * scale)

    return cell


def _interval(result: Result) -> str:
    bounds = result["perplexity_95"]
    return "-" if bounds is None else f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def _distance(key: str) -> Callable[[Result], str]:
    def cell(result: Result) -> str:
        if key not in result:
            return "-"
        value, error = result[key]["nats_per_token"], result[key]["standard_error"]
        return f"{value:+.4f}" if error is None else f"{value:+.4f} ± {error:.4f}"

    return cell


COLUMNS: Mapping[str, Callable[[Result], str]] = {
    "perplexity": _number("{:.2f}", "perplexity"),
    "95% interval": _interval,
    "nats/token": _number("{:.4f}", "nats_per_token"),
    "over uncompressed": _distance("over_uncompressed"),
    "over random": _distance("over_random"),
    "bits/byte": _number("{:.4f}", "bits_per_byte"),
    "live KV MB": _number("{:.2f}", "mean_live_bytes", scale=1e-6),
    "share": _number("{:.0%}", "live_share"),
}
