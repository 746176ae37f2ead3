"""Writes docs/cli.md from the command line's own help: `make cli-docs`."""

from __future__ import annotations

import argparse
from pathlib import Path

from fastinfer.options import build_parser

TARGET = Path(__file__).resolve().parents[1] / "docs" / "cli.md"

HEAD = """# Command line

Written by `make cli-docs` from the program's own help; a test compares the two.

`python -m fastinfer` and, after `pip install -e .`, `fastinfer` are the same. The text goes to
stdout, everything else to stderr. Exit codes: 0 done, 1 a model's logits were not finite, 2 a value
that you can correct (one line, `error: field: what is allowed`), 130 interrupted.

`bench` and `ppl` print their table to stderr and one JSON document as the last line of stdout;
`download` prints the folder to stdout.

In a terminal, control characters in a model's text are shown as visible ones; a file or a pipe gets
the text as it is, save that a last line break is added where there is none. `--json` is exact.
"""


def render() -> str:
    """The page: the help of every command."""
    parser = build_parser()
    parts = [HEAD, _block("fastinfer --help", parser)]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parts += [
                _block(f"fastinfer {name} --help", command)
                for name, command in action.choices.items()
            ]
    return "\n".join(parts)


def _block(title: str, parser: argparse.ArgumentParser) -> str:
    return f"## {title}\n\n```\n{parser.format_help()}```\n"


if __name__ == "__main__":
    TARGET.write_text(render())
