"""What argv may say to `bench` and `download`: the parsers, and from their texts to a checked
choice. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastinfer.argv import add_options, names_in, number, whole
from fastinfer.config import DTYPES, GAMMA_POLICIES, POSITIONS, ConfigError, DecodeConfig
from fastinfer.evaluation.fused import FORM, names_of_methods, options_for, own_options
from fastinfer.evaluation.names import METHODS, PEERS
from fastinfer.events import Role

_DRAFTING = (
    "rule", "gamma", "gamma_policy", "gamma_min", "gamma_max", "gamma_threshold", "inner_gamma",
    "rounds",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BenchChoice:
    """A benchmark as argv asks for it, checked as far as no model is needed."""

    preset: str
    overrides: dict[Role, str]
    dtype: str
    device: str
    methods: tuple[str, ...]
    peers: tuple[str, ...]
    prompts: str
    prompt_tokens: int
    max_new_tokens: int
    repeats: int
    temperature: float
    seed: int
    options: dict[str, Any]  # of `DecodeConfig`, for every method
    out: Path | None


def bench_choice(args: argparse.Namespace) -> BenchChoice:
    """What argv asks for; raises `ConfigError`."""
    methods = names_of_methods(args.methods)
    if not methods:
        raise ConfigError("methods", f"must name at least one of {', '.join(METHODS)}")
    options = {
        name: number(given) for name in _DRAFTING if (given := getattr(args, name)) is not None
    }
    if any("press" in own_options(name) for name in methods):
        options |= {
            "press_interval": whole("press_interval", args.press_interval, 0) or None,
            "press_positions": args.press_positions,
            "press_sinks": number(args.press_sinks),
        }
    choice = BenchChoice(
        preset=args.preset,
        overrides={role: name for role in Role if (name := getattr(args, role.value)) is not None},
        dtype=args.dtype,
        device=args.device,
        methods=methods,
        peers=names_in("peers", args.peers, PEERS),
        prompts=args.prompts,
        prompt_tokens=whole("prompt_tokens", args.prompt_tokens, 1),
        max_new_tokens=whole("max_new_tokens", args.max_new_tokens, 2),
        repeats=whole("repeats", args.repeats, 1),
        temperature=number(args.temperature),
        seed=number(args.seed),
        options=options,
        out=None if args.out is None else Path(args.out).expanduser(),
    )
    _check(choice)
    return choice


def _check(choice: BenchChoice) -> None:
    """Refuse before a model is loaded what the engine would refuse after."""
    for name in choice.methods:
        options = options_for(name, choice.options)
        DecodeConfig.from_mapping(
            {**options, "temperature": choice.temperature, "seed": choice.seed}
        )
    if choice.dtype not in DTYPES:
        raise ConfigError("dtype", f"must be one of {', '.join(DTYPES)}, not {choice.dtype!r}")
    draft = choice.overrides.get(Role.DRAFT)
    if draft in METHODS:
        raise ConfigError("draft", f"names a model here; {draft} is a method: --methods {draft}")
    if choice.out is not None and choice.out.exists() and not choice.out.is_dir():
        raise ConfigError("out", f"must be a folder, and {choice.out} is a file")


def add_command(new: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `bench`; `new` makes the parser of a command."""
    _add_bench(
        new(
            "bench",
            help="measure methods and peers side by side",
            description="Run methods and peers in turn on the same prompts: a table to stderr, "
            "one JSON document as the last line of stdout.",
            usage="fastinfer bench [options]",
        )
    )


def _add_bench(parser: argparse.ArgumentParser) -> None:
    add_options(
        parser.add_argument_group("what runs (names, with commas between)"),
        (
            "--methods",
            "NAMES",
            "autoregressive,speculative,cascade",
            f"of {', '.join(METHODS)}; with a gamma policy or a press as {FORM}, such as "
            "speculative+aimd or speculative+streaming@0.5:target",
        ),
        ("--peers", "NAMES", "", f"of {', '.join(PEERS)}"),
        ("--prompts", "FROM", "examples", "examples, a text file, or a folder of .txt files"),
        ("--prompt-tokens", "N", "128", "the first N tokens of each prompt"),
        ("--max-new-tokens", "N", "128", "so many new tokens, whatever the text says"),
        ("--repeats", "N", "5", "runs of each on each prompt, after a warm-up"),
        ("--temperature", "T", "0", "0 is greedy"),
        ("--seed", "S", "1", "of the first repeat; each next one has the next"),
        ("--out", "DIR", None, "write result.json, report.html and report.png there"),
    )
    add_options(
        parser.add_argument_group("models (a NAME is one of the Hub's, or a local folder)"),
        ("--preset", "PRESET", "nano", "a set of models that fit together"),
        ("--target", "NAME", None, "the model whose text is wanted"),
        ("--intermediate", "NAME", None, "the middle model of a cascade"),
        ("--draft", "NAME", None, "the model that drafts"),
        ("--dtype", "DTYPE", "auto", ", ".join(DTYPES)),
        ("--device", "DEVICE", "auto", "auto, cpu, cuda, ..."),
    )
    add_options(
        parser.add_argument_group("drafting (as for generate)"),
        ("--rule", "RULE", None, "the rule of acceptance"),
        ("--gamma", "N", None, "tokens that the target verifies at once, at first"),
        ("--gamma-policy", "POLICY", None, ", ".join(GAMMA_POLICIES)),
        ("--gamma-min", "N", None, "its floor"),
        ("--gamma-max", "N", None, "its ceiling"),
        ("--gamma-threshold", "P", None, "of the policy confidence"),
        ("--inner-gamma", "N", None, "cascade: tokens that the intermediate verifies at once"),
        ("--rounds", "N", None, "cascade: most inner rounds in one of the target's"),
    )
    add_options(
        parser.add_argument_group("presses (of the methods that name one)"),
        ("--press-interval", "N", "64", "act again every N tokens; 0: after the prompt only"),
        ("--press-positions", "POSITIONS", "original", ", ".join(POSITIONS)),
        ("--press-sinks", "N", "4", "so many first entries always stay"),
    )
