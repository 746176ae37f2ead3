"""What argv may say: the parser, and from its texts to a config, a choice of models and a prompt.

argparse checks no value: texts go to `DecodeConfig.from_mapping`, so that the command line, the
page and HTTP refuse the same values in the same words.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fastinfer import __version__, bench_options, models_options, ppl_options, serve_options
from fastinfer.argv import number, require_utf8
from fastinfer.chat_options import add_chat_options, add_model_defaults, with_defaults
from fastinfer.config import (
    DRAFT_KINDS,
    DTYPES,
    GAMMA_POLICIES,
    INTERMEDIATE_KINDS,
    METHODS,
    RULES,
    ConfigError,
    DecodeConfig,
)
from fastinfer.press_options import PRESS_NUMBERS, PRESS_TEXTS, add_press_options

_TEXTS = ("method", "rule", "gamma_policy", "stop", *PRESS_TEXTS)  # options that are no numbers
_NUMBERS = (
    "max_new_tokens", "min_new_tokens", "temperature", "top_k", "top_p", "min_p", "typical_p",
    "repetition_penalty", "presence_penalty", "frequency_penalty", "seed",
    "gamma", "gamma_min", "gamma_max", "gamma_threshold", "inner_gamma", "rounds", "logprobs",
    *PRESS_NUMBERS,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which models, where and how: the arguments of `fastinfer.engine.load`."""

    preset: str
    target: str | None
    intermediate: str | None
    draft: str | None
    dtype: str
    device: str


def model_choice(args: argparse.Namespace) -> ModelChoice:
    """The models that argv names."""
    return ModelChoice(
        preset=args.preset,
        target=args.target,
        intermediate=None if args.intermediate in INTERMEDIATE_KINDS else args.intermediate,
        draft=_draft(args)[1],
        dtype=args.dtype,
        device=args.device,
    )


def decode_config(
    args: argparse.Namespace, defaults: Mapping[str, Any] | None = None
) -> DecodeConfig:
    """The request that argv asks for, `defaults` where it says nothing; raises `ConfigError`."""
    values: dict[str, Any] = {name: getattr(args, name) for name in _TEXTS}
    given = {name: getattr(args, name) for name in _NUMBERS}
    values |= {name: number(text) for name, text in given.items() if text is not None}
    values["ignore_eos"] = True if args.ignore_eos else None
    values["use_cache"] = False if args.no_cache else None
    values["draft"] = _draft(args)[0]
    values["intermediate"] = args.intermediate if args.intermediate in INTERMEDIATE_KINDS else None
    for stop in args.stop or ():
        require_utf8("stop", stop)
    return DecodeConfig.from_mapping(with_defaults(values, defaults or {}))


def read_prompt(args: argparse.Namespace) -> str:
    """The prompt from argv, a file or standard input; raises `ConfigError`."""
    if args.prompt is not None and args.prompt_file is not None:
        raise ConfigError("prompt", "is given twice: use --prompt or --prompt-file, not both")
    if args.prompt is not None:
        return require_utf8("prompt", args.prompt)
    if args.prompt_file is None:
        raise ConfigError(
            "prompt", "is missing: give --prompt TEXT or --prompt-file FILE (- is standard input)"
        )
    try:
        standard_input = args.prompt_file == "-"
        data = sys.stdin.buffer.read() if standard_input else Path(args.prompt_file).read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or "can't be read"
        raise ConfigError("prompt_file", f"{args.prompt_file}: {reason}") from error
    except UnicodeDecodeError as error:
        raise ConfigError("prompt_file", "must be a text in UTF-8") from error
    return text.removesuffix("\n").removesuffix("\r")  # an editor's last line break is not meant


def _draft(args: argparse.Namespace) -> tuple[str | None, str | None]:
    """(kind, model): --draft names a kind of drafting or a model, --approx_model_name a model."""
    if args.draft is None or args.draft == "model":
        return args.draft, args.approx_model_name
    if args.approx_model_name is not None:
        raise ConfigError("draft", "is given twice: use --draft or --approx_model_name, not both")
    return (args.draft, None) if args.draft in DRAFT_KINDS else ("model", args.draft)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error here does."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message} (see {self.prog} --help)\n")


class _Formatter(argparse.HelpFormatter):
    """One look on every version of Python: 100 columns, `--prompt, --input TEXT`."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=100)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Every value stays a text."""
    parser = _Parser(
        prog="fastinfer",
        description="Watch a language model decode faster, and check that nothing was lost.",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"fastinfer {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    new = functools.partial(commands.add_parser, formatter_class=_Formatter, allow_abbrev=False)
    generate = new(
        "generate",
        help="continue a prompt",
        description="Continue a prompt: the text to stdout as it comes, figures to stderr.",
        usage="fastinfer generate (--prompt TEXT | --prompt-file FILE) [options]",
    )
    _add_text_options(generate)
    _add_model_options(generate)
    _add_draft_options(generate)
    _add_sampling_options(generate)
    add_press_options(generate)
    bench_options.add_command(new)
    ppl_options.add_ppl(new)
    models_options.add_commands(new)
    serve_options.add_command(new)
    return parser


def _add_text_options(parser: argparse.ArgumentParser) -> None:
    default = DecodeConfig().to_mapping()
    group = parser.add_argument_group("text")
    group.add_argument("--prompt", "--input", metavar="TEXT", help="the text to continue")
    group.add_argument(
        "--prompt-file",
        metavar="FILE",
        help="a file with that text, its last line break left out; - is standard input",
    )
    add_chat_options(group)
    group.add_argument(
        "--max-new-tokens",
        "--max_tokens",
        metavar="N",
        help=f"at most so many tokens (default {default['max_new_tokens']})",
    )
    group.add_argument(
        "--min-new-tokens", metavar="N", help="no end of text before so many (default 0)"
    )
    group.add_argument(
        "--stop",
        metavar="TEXT",
        action="append",
        help="end before this text appears; may be given more than once",
    )
    group.add_argument("--ignore-eos", action="store_true", help="go on after the end of text")
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="colour each token by its origin; letters where NO_COLOR is set",
    )
    group.add_argument("--json", action="store_true", help="one event a line, as JSON, and no text")
    group.add_argument(
        "--logprobs",
        metavar="N",
        help="with --json: each token's log-probability, and the N likeliest tokens there",
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("models (a NAME is one of the Hub's, or a local folder)")
    group.add_argument(
        "--preset",
        metavar="PRESET",
        default="nano",
        help="a set of models that fit together (default nano, which is bundled)",
    )
    group.add_argument(
        "--target", "--target_model_name", metavar="NAME", help="the model whose text you want"
    )
    group.add_argument(
        "--intermediate",
        metavar="NAME",
        help="the middle model of a cascade; self is the target over a compressed cache",
    )
    group.add_argument(
        "--draft",
        metavar="DRAFT",
        help="who drafts: model (default), prompt-lookup, lookup-first (prompt lookup where the "
        "text repeats itself, the model elsewhere), self (the target over a compressed "
        "cache of its own; --press with --press-on draft sets which), or the NAME of another model",
    )
    group.add_argument("--approx_model_name", metavar="NAME", help="the same as --draft NAME")
    group.add_argument(
        "--no-cache",
        action="store_true",
        help="read the whole sequence again in every pass: slow, for comparison only",
    )
    group.add_argument(
        "--dtype", metavar="DTYPE", default="auto", help=f"{_either(DTYPES)} (default auto)"
    )
    group.add_argument(
        "--device",
        metavar="DEVICE",
        default="auto",
        help="auto, cpu, cuda, split (the target over all GPUs), ... (default auto)",
    )


def _add_draft_options(parser: argparse.ArgumentParser) -> None:
    default = DecodeConfig().to_mapping()
    group = parser.add_argument_group("drafting")
    for option, metavar, text in (
        ("--method", "METHOD", f"{_either(METHODS)} (default {default['method']})"),
        (
            "--rule",
            "RULE",
            f"{_either(RULES)} (default {default['rule']}); google and deepmind are other names of "
            "residual, since the two papers give one rule",
        ),
        (
            "--gamma",
            "N",
            f"tokens that the target verifies at once, at first (default {default['gamma']})",
        ),
        (
            "--gamma-policy",
            "POLICY",
            f"how gamma moves: {_either(GAMMA_POLICIES)} (default {default['gamma_policy']})",
        ),
        ("--gamma-min", "N", "its floor (default: the policy's own; aimd 4, additive 2, else 0)"),
        ("--gamma-max", "N", f"its ceiling (default {default['gamma_max']})"),
        (
            "--gamma-threshold",
            "P",
            "confidence: stop where the draft's likeliest token has less than P "
            f"(default {default['gamma_threshold']})",
        ),
        (
            "--inner-gamma",
            "N",
            "cascade: tokens that the intermediate verifies at once (default: as --gamma)",
        ),
        (
            "--rounds",
            "N",
            f"cascade: most inner rounds in one of the target's (default {default['rounds']})",
        ),
    ):
        group.add_argument(option, metavar=metavar, help=text)


def _add_sampling_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling (the same for every model, in this order)")
    for option, metavar, text in (
        (
            "--repetition-penalty",
            "X",
            "push down tokens of the prompt and the output (default 1, off)",
        ),
        (
            "--presence-penalty",
            "X",
            "subtract from logits of tokens generated before (default 0, off)",
        ),
        ("--frequency-penalty", "X", "the same for each time it was generated (default 0, off)"),
        ("--temperature", "T", "0 is greedy, 1 the model's own law (default 1)"),
        ("--top-k", "K", "keep the K most likely tokens (default 0, off)"),
        ("--top-p", "P", "keep the most likely tokens that sum to P (default 1, off)"),
        ("--min-p", "P", "drop tokens below P times the most likely one's (default 0, off)"),
        ("--typical-p", "P", "keep the most typical tokens that sum to P (default 1, off)"),
        (
            "--seed",
            "S",
            "repeats a run (default: a fresh one, shown at the end); under the residual rule with "
            "--gamma-policy cost_aware block lengths follow the clock, so use another policy or "
            "--rule coupled to repeat a text to the letter",
        ),
    ):
        group.add_argument(option, metavar=metavar, help=text)
    add_model_defaults(group)


def _either(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
