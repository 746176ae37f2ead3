"""The command line: argv -> config -> events -> text on stdout, everything else on stderr.

Heavy imports wait until a command needs them, so that `--help` and a wrong option answer at once.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn, Protocol

from fastinfer.bench_options import bench_choice
from fastinfer.chat_options import messages
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.events import Event, Started, Step, to_json
from fastinfer.metrics import RunStats
from fastinfer.models_options import download_choice
from fastinfer.options import ModelChoice, build_parser, decode_config, model_choice, read_prompt
from fastinfer.ppl_options import ppl_choice
from fastinfer.serve_options import serve_choice
from fastinfer.terminal import Style, legend, mark, style_for, table, visible

if TYPE_CHECKING:
    from fastinfer.info import EngineInfo

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
EXIT_BROKEN_PIPE = 141  # as a shell reports SIGPIPE


class TextEngine(Protocol):
    """What this file needs from `fastinfer.engine.Engine`."""

    @property
    def info(self) -> EngineInfo:
        """What is loaded."""
        ...

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation; raises `ConfigError`."""
        ...

    def check(self, prompt: str | Sequence[int], config: DecodeConfig) -> object:
        """Raise `ConfigError` for what can be refused before decoding."""
        ...

    def stream(
        self, prompt: str | Sequence[int], config: DecodeConfig
    ) -> Generator[Event, None, None]:
        """Started, Step..., Finished."""
        ...


class Load(Protocol):
    """From a choice of models to an engine; raises `ConfigError`."""

    def __call__(self, choice: ModelChoice) -> TextEngine:
        """Load the models."""
        ...


def run() -> NoReturn:
    """Be the process: `main` on the real streams."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack a character
    code = main()
    if code == EXIT_BROKEN_PIPE:
        # Python flushes stdout once more at exit, which would complain: nobody reads it any longer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def main(argv: Sequence[str] | None = None, *, load: Load | None = None) -> int:
    """Run one command and return its exit code. Tests give a `load` of their own."""
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    try:
        return _run(args, load or _load_engine)
    except ConfigError as error:
        print(f"error: {visible(' '.join(str(error).split()))}", file=sys.stderr)
        return EXIT_USAGE
    except FloatingPointError as error:  # weights or a dtype that give no finite logits
        print(f"error: {visible(str(error))}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_BROKEN_PIPE


def _run(args: argparse.Namespace, load: Load) -> int:
    match args.command:
        case "bench":
            choice = bench_choice(args)
            from fastinfer.bench_cli import bench

            return bench(choice)
        case "ppl":
            asked = ppl_choice(args)
            from fastinfer.ppl_cli import ppl

            return ppl(asked)
        case "download":
            wanted = download_choice(args)
            from fastinfer.models_cli import download

            return download(wanted)
        case "models":
            from fastinfer.models_cli import models

            return models(args.device, args.dtype)
        case "serve":
            served = serve_choice(args)
            from fastinfer.http.process import serve

            return serve(served)
        case _:
            return generate(args, load)


def generate(args: argparse.Namespace, load: Load) -> int:
    """Continue one prompt. What needs no model is checked before one is loaded."""
    choice = model_choice(args)
    decode_config(args)
    prompt = read_prompt(args)
    chat = messages(args, prompt)
    engine = load(choice)
    sampling = engine.info.defaults if args.model_defaults else {}
    config = decode_config(args, {**sampling, **engine.info.drafting})
    asked = prompt if chat is None else engine.chat_prompt(chat)
    engine.check(asked, config)
    with closing(engine.stream(asked, config)) as events:
        return _print_run(events, args)


def _load_engine(choice: ModelChoice) -> TextEngine:
    from fastinfer.engine import load
    from fastinfer.models_cli import Bars

    with Bars() as bars:
        return load(
            choice.preset,
            target=choice.target,
            intermediate=choice.intermediate,
            draft=choice.draft,
            dtype=choice.dtype,
            device=choice.device,
            progress=bars,
        )


def _print_run(events: Generator[Event, None, None], args: argparse.Namespace) -> int:
    """Print a run as it comes. An interrupted one still gets its figures."""
    style = style_for(args.verbose, os.environ)
    stats = RunStats()
    code = 0
    open_line = False
    try:
        for event in events:
            stats.add(event)
            if isinstance(event, Started) and style is not Style.PLAIN and not args.json:
                print(legend(event, style), file=sys.stderr, flush=True)
            text = json.dumps(to_json(event)) + "\n" if args.json else _text(event, style)
            if text:
                print(text, end="", flush=True)
                open_line = not text.endswith("\n")
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    finally:
        if open_line:
            print(flush=True)
    print(f"\n{visible(table(stats))}", end="", file=sys.stderr, flush=True)
    return code


def _text(event: Event, style: Style) -> str:
    """What a step adds. A file or a pipe gets the text as it is, a terminal the visible form."""
    if not isinstance(event, Step):
        return ""
    text = "".join(mark(token.text, token.origin, style) for token in event.tokens)
    return visible(text) if style is Style.PLAIN and sys.stdout.isatty() else text
