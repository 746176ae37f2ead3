"""The options of KV compression, as argv spells them; `DecodeConfig` does all checking."""

from __future__ import annotations

import argparse

from fastinfer.config import DEFAULT_RATIO, POSITIONS, PRESS_NAMES, PRESS_ROLES

PRESS_TEXTS = ("press", "press_on", "press_positions")  # options that are no numbers
PRESS_NUMBERS = (
    "compression_ratio", "max_cache_tokens", "press_interval", "press_sinks", "shadow_every",
)  # fmt: skip


def add_press_options(parser: argparse.ArgumentParser) -> None:
    """Add the group. Every value stays a text."""
    group = parser.add_argument_group(
        "KV compression (lossless unless it acts on the target; docs/presses.md)"
    )
    for option, metavar, text in (
        ("--press", "PRESS", f"who chooses what stays: {', '.join(PRESS_NAMES)} (default: none)"),
        (
            "--compression-ratio",
            "R",
            f"remove this fraction of all tokens read so far (default {DEFAULT_RATIO})",
        ),
        ("--max-cache-tokens", "N", "instead of a ratio: keep at most N entries"),
        (
            "--press-interval",
            "N",
            "compress again every N tokens while decoding (default: after the prompt only)",
        ),
        (
            "--press-on",
            "ROLES",
            f"whose cache, with commas between: {', '.join(PRESS_ROLES)} (default target)",
        ),
        (
            "--press-positions",
            "WHICH",
            f"{' or '.join(POSITIONS)}: kept keys stay at their places in the sequence (default), "
            "or move to those in the cache, so that generation may pass the trained context",
        ),
        ("--press-sinks", "N", "first tokens that always stay (default 4)"),
        (
            "--shadow-every",
            "N",
            "lossy runs: ask the full cache every N rounds, and report KL and agreement "
            "(default 0, off; its time is not counted)",
        ),
    ):
        group.add_argument(option, metavar=metavar, help=text)
