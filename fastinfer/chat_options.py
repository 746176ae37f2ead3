"""What argv may say about chats and the model's own sampling. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from fastinfer.argv import require_utf8
from fastinfer.config import ConfigError


def messages(args: argparse.Namespace, prompt: str) -> list[dict[str, str]] | None:
    """The conversation that argv asks for, or None for a text to continue; raises `ConfigError`."""
    if not args.chat:
        if args.system is not None:
            raise ConfigError("system", "is a message of a chat: give --chat too")
        return None
    asked = [{"role": "user", "content": prompt}]
    if args.system is None:
        return asked
    return [{"role": "system", "content": require_utf8("system", args.system)}, *asked]


def with_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Options as given, and the defaults where an option was not."""
    return {**values, **{k: v for k, v in defaults.items() if values.get(k) is None}}


def add_chat_options(group: argparse._ArgumentGroup) -> None:
    """Add `--chat` and `--system`."""
    group.add_argument(
        "--chat",
        action="store_true",
        help="the prompt is a message to an instruct model, which answers",
    )
    group.add_argument("--system", metavar="TEXT", help="with --chat: how the model is to behave")


def add_model_defaults(group: argparse._ArgumentGroup) -> None:
    """Add `--model-defaults`."""
    group.add_argument(
        "--model-defaults",
        action="store_true",
        help="for what is not given here, sample as the target's authors do (generation_config)",
    )
