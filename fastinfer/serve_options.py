"""What argv may say to `serve`: the parser, and from its texts to a checked choice.

Nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastinfer.config import DTYPES, ConfigError
from fastinfer.events import Role

KEY_VARIABLE = "FASTINFER_API_KEY"
MAX_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """What the HTTP API allows. Raises `ConfigError` naming the option."""

    max_waiting: int = 32  # requests behind the one that decodes; the next gets 429
    max_new_tokens: int = 2048  # of one request
    max_seconds: float = 120.0  # of decoding, for one request
    max_body_bytes: int = 1_000_000
    api_key: str | None = field(default=None, repr=False)
    cors_origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, low in (("max_waiting", 0), ("max_new_tokens", 1), ("max_body_bytes", 1)):
            if getattr(self, name) < low:
                raise ConfigError(name, f"must be {low} or more, not {getattr(self, name)}")
        if not (math.isfinite(self.max_seconds) and self.max_seconds > 0):
            raise ConfigError("max_seconds", f"must be above 0, not {self.max_seconds}")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ConfigError("api_key", "must be of printable ASCII characters")


@dataclass(frozen=True, kw_only=True)
class ServeChoice:
    """A server as argv asks for it, checked as far as no model is needed."""

    host: str
    port: int
    preset: str
    overrides: dict[Role, str]
    dtype: str
    device: str
    config: ServeConfig


def serve_choice(args: argparse.Namespace) -> ServeChoice:
    """What argv asks for; raises `ConfigError`."""
    if args.dtype not in DTYPES:
        raise ConfigError("dtype", f"must be one of {', '.join(DTYPES)}, not {args.dtype!r}")
    return ServeChoice(
        host=args.host,
        port=read_port(args.port),
        preset=args.preset,
        overrides={role: name for role in Role if (name := getattr(args, role.value)) is not None},
        dtype=args.dtype,
        device=args.device,
        config=serve_config(args, os.environ),
    )


def read_port(text: str) -> int:
    """A port from its text; raises `ConfigError`."""
    port = _whole("port", text)
    if not 0 <= port <= MAX_PORT:
        raise ConfigError("port", f"must be from 0 (any free one) to {MAX_PORT}, not {port}")
    return port


def serve_config(args: argparse.Namespace, environment: Mapping[str, str]) -> ServeConfig:
    """The limits that argv asks for; the key may stand in the environment instead."""
    return ServeConfig(
        max_waiting=_whole("max_waiting", args.max_waiting),
        max_new_tokens=_whole("max_new_tokens", args.max_new_tokens),
        max_seconds=_seconds(args.max_seconds),
        max_body_bytes=_whole("max_body_bytes", args.max_body_bytes),
        api_key=args.api_key or environment.get(KEY_VARIABLE) or None,
        cors_origins=tuple(args.cors_origin or ()),
    )


def _whole(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(field, f"must be a whole number, not {text!r}") from None


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        return float(text)
    raise ConfigError("max_seconds", f"must be a number of seconds, not {text!r}")


def add_command(new: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `serve`; `new` makes the parser of a command."""
    parser = new(
        "serve",
        help="answer over HTTP, without the page",
        description="Serve the HTTP API, without the page: POST /predict, POST /generate, "
        "POST /v1/completions, POST /v1/chat/completions, GET /v1/models, /health and /metrics.",
        usage="fastinfer serve [options]",
    )
    address = parser.add_argument_group("address")
    _add(address, "--host", "HOST", "127.0.0.1", "0.0.0.0 to be reached from other machines")
    _add(address, "--port", "PORT", "5000", "0 is any free one")
    add_limits(parser)
    models = parser.add_argument_group("models (a NAME is one of the Hub's, or a local folder)")
    _add(models, "--preset", "PRESET", "nano", "a set of models that fit together")
    _add(models, "--target", "NAME", None, "the model whose text is wanted")
    _add(models, "--intermediate", "NAME", None, "the middle model of a cascade")
    _add(models, "--draft", "NAME", None, "the model that drafts")
    _add(models, "--dtype", "DTYPE", "auto", ", ".join(DTYPES))
    _add(models, "--device", "DEVICE", "auto", "auto, cpu, cuda, ...")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add what `ServeConfig` holds, for `serve` and for the app with the page."""
    default = ServeConfig()
    limits = parser.add_argument_group("limits of the HTTP API")
    for option, metavar, value, text in (
        ("--max-waiting", "N", default.max_waiting, "requests that wait; the next gets 429"),
        ("--max-new-tokens", "N", default.max_new_tokens, "most new tokens of one request"),
        ("--max-seconds", "S", default.max_seconds, "a request that decodes longer is cut off"),
        ("--max-body-bytes", "N", default.max_body_bytes, "a longer body gets 413"),
    ):
        _add(limits, option, metavar, str(value), text)
    _add(
        limits,
        "--api-key",
        "KEY",
        None,
        f"ask for this key, as a bearer token; better given as {KEY_VARIABLE}, since others "
        "on this machine can read a command line",
    )
    limits.add_argument(
        "--cors-origin",
        metavar="ORIGIN",
        action="append",
        help="let pages of this origin call the API; may be given more than once (default none)",
    )


def _add(
    group: argparse._ArgumentGroup, option: str, metavar: str, default: str | None, text: str
) -> None:
    shown = f"{text} (default {default})" if default else text
    group.add_argument(option, metavar=metavar, default=default, help=shown)
