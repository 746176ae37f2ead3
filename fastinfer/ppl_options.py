"""What argv may say to `ppl`: the parser, and from its texts to a checked choice. Nothing heavy is
imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastinfer.argv import add_options, names_in, number, whole
from fastinfer.config import (
    DTYPES,
    POSITIONS,
    PRESS_NAMES,
    UNEVEN_PRESSES,
    ConfigError,
    DecodeConfig,
)
from fastinfer.evaluation.names import CORPORA, UNCOMPRESSED
from fastinfer.events import Role

GRID_RATIOS = (0.25, 0.5, 0.75)


@dataclass(frozen=True, kw_only=True)
class PplChoice:
    """A measurement as argv asks for it, checked as far as no model is needed."""

    preset: str
    role: Role
    target: str | None  # another model than the preset's
    dtype: str
    device: str
    corpus: str
    context: int
    stride: int
    max_windows: int | None
    variants: dict[str, DecodeConfig]  # the uncompressed cache first
    interval: int | None
    positions: str
    num_sinks: int
    out: Path | None


def ppl_choice(args: argparse.Namespace) -> PplChoice:
    """What argv asks for; raises `ConfigError`."""
    roles = [role.value for role in Role]
    if args.role not in roles:
        raise ConfigError("role", f"must be one of {', '.join(roles)}, not {args.role!r}")
    role = Role(args.role)
    if args.target is not None and role is not Role.TARGET:
        raise ConfigError("role", "is of the preset's models; --target NAME measures another model")
    if args.dtype not in DTYPES:
        raise ConfigError("dtype", f"must be one of {', '.join(DTYPES)}, not {args.dtype!r}")
    if args.press_positions not in POSITIONS:
        raise ConfigError(
            "press_positions",
            f"must be one of {', '.join(POSITIONS)}, not {args.press_positions!r}",
        )
    context = whole("context", args.context, 2)
    stride = max(1, context // 2) if args.stride is None else whole("stride", args.stride, 1)
    if stride >= context:
        raise ConfigError("stride", f"must be from 1 to {context - 1}, not {stride}")
    out = None if args.out is None else Path(args.out).expanduser()
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError("out", f"must be a folder, and {out} is a file")
    interval = whole("press_interval", args.press_interval, 0) or None
    return PplChoice(
        preset=args.preset,
        role=role,
        target=args.target,
        dtype=args.dtype,
        device=args.device,
        corpus=args.corpus,
        context=context,
        stride=stride,
        max_windows=None if args.max_windows is None else whole("max_windows", args.max_windows, 1),
        variants=_variants(args, role, interval),
        interval=interval,
        positions=args.press_positions,
        num_sinks=whole("press_sinks", args.press_sinks, 0),
        out=out,
    )


def _variants(
    args: argparse.Namespace, role: Role, interval: int | None
) -> dict[str, DecodeConfig]:
    """The uncompressed cache, then each press at each size."""
    known = _all_presses(args.press_positions) if args.grid else ()
    presses = known if args.press is None else names_in("press", args.press, PRESS_NAMES)
    sizes = _sizes(args)
    if (args.compression_ratio or args.max_cache_tokens) and not presses:
        raise ConfigError("press", f"is missing: one of {', '.join(PRESS_NAMES)}, or use --grid")
    variants = {UNCOMPRESSED: DecodeConfig(method="autoregressive")}
    for press in presses:
        for name, size in sizes.items():
            variants[f"{press}@{name}"] = DecodeConfig.from_mapping(
                {
                    "method": "autoregressive",
                    "press": press,
                    "press_on": role.value,
                    "press_interval": interval,
                    "press_positions": args.press_positions,
                    "press_sinks": number(args.press_sinks),
                    **size,
                }
            )
    return variants


def _all_presses(positions: str) -> tuple[str, ...]:
    """Every press that can have these positions."""
    uneven = UNEVEN_PRESSES if positions == "in_cache" else ()
    return tuple(press for press in PRESS_NAMES if press not in uneven)


def _sizes(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """How much each press keeps, by a short name."""
    if args.max_cache_tokens is not None:
        if args.compression_ratio is not None:
            raise ConfigError("max_cache_tokens", "can't be given with a compression_ratio")
        return {
            f"{args.max_cache_tokens}tokens": {"max_cache_tokens": number(args.max_cache_tokens)}
        }
    if args.compression_ratio is not None:
        texts = [part.strip() for part in args.compression_ratio.split(",") if part.strip()]
        return {text: {"compression_ratio": number(text)} for text in texts}
    ratios = GRID_RATIOS if args.grid else (0.5,)
    return {f"{ratio:g}": {"compression_ratio": ratio} for ratio in ratios}


def add_ppl(new: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `ppl`; `new` makes the parser of a command."""
    parser = new(
        "ppl",
        help="measure perplexity, with and without presses on the KV cache",
        description="Perplexity by teacher forcing, of the uncompressed cache and of each press: a "
        "table to stderr, one JSON document as the last line of stdout.",
        usage="fastinfer ppl --corpus FROM [options]",
    )
    text = parser.add_argument_group("text")
    text.add_argument(
        "--corpus",
        metavar="FROM",
        required=True,
        help=f"{', '.join(CORPORA)}, a text file, or a folder of text files",
    )
    add_options(
        text,
        ("--context", "N", "1024", "tokens in a window"),
        ("--stride", "N", None, "the last N of them count (default: half of the context)"),
        ("--max-windows", "N", None, "so many windows, at even distances (default: all)"),
        ("--out", "DIR", None, "write result.json, report.html and report.png there"),
    )
    presses = parser.add_argument_group("presses (one or more, with commas between)")
    add_options(
        presses,
        ("--press", "NAMES", None, f"of {', '.join(PRESS_NAMES)}"),
        ("--compression-ratio", "RATIOS", None, "the fraction removed, 0 to below 1 (default 0.5)"),
        ("--max-cache-tokens", "N", None, "entries to keep, in place of a ratio"),
        ("--press-interval", "N", "64", "act again every N tokens; 0: after the first part only"),
        ("--press-positions", "POSITIONS", "original", ", ".join(POSITIONS)),
        ("--press-sinks", "N", "4", "so many first entries always stay"),
    )
    ratios = ", ".join(f"{ratio:g}" for ratio in GRID_RATIOS)
    presses.add_argument(
        "--grid", action="store_true", help=f"every press at the ratios {ratios}, in one call"
    )
    add_options(
        parser.add_argument_group("model (a NAME is one of the Hub's, or a local folder)"),
        ("--preset", "PRESET", "nano", "a set of models that fit together"),
        ("--role", "ROLE", "target", f"which of them: {', '.join(role.value for role in Role)}"),
        ("--target", "NAME", None, "another model in place of the preset's"),
        ("--dtype", "DTYPE", "auto", ", ".join(DTYPES)),
        ("--device", "DEVICE", "auto", "auto, cpu, cuda, ..."),
    )
