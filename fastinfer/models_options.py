"""What argv may say to `models` and `download`. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from fastinfer.config import ConfigError
from fastinfer.evaluation.names import CORPORA
from fastinfer.events import Role

_ROLES = (Role.TARGET, Role.INTERMEDIATE, Role.DRAFT)


@dataclass(frozen=True, kw_only=True)
class DownloadChoice:
    """What `download` is asked for: a preset, models by name, a data set, or several of them."""

    preset: str | None
    dataset: str | None
    overrides: dict[Role, str]


def download_choice(args: argparse.Namespace) -> DownloadChoice:
    """The choice that argv spells; raises `ConfigError`."""
    given = {role: getattr(args, role.value) for role in _ROLES}
    overrides = {role: name for role, name in given.items() if name is not None}
    if args.preset is None and args.dataset is None and not overrides:
        raise ConfigError(
            "preset",
            "is missing: give --preset PRESET, --target NAME or --dataset NAME; `models` lists "
            "presets",
        )
    return DownloadChoice(preset=args.preset, dataset=args.dataset, overrides=overrides)


def add_commands(new: Callable[..., argparse.ArgumentParser]) -> None:
    """Add `models` and `download`; `new` makes the parser of a command."""
    models = new(
        "models",
        help="list the presets: what is here, what a download costs, what fits",
        description="List the presets: what is on this machine, what a download costs, and whether "
        "the weights fit into the memory that is free now. Asks nobody.",
        usage="fastinfer models [options]",
    )
    for option, text in (("--dtype", "auto, float32, bfloat16"), ("--device", "auto, cpu, cuda")):
        models.add_argument(
            option, metavar=option[2:].upper(), default="auto", help=f"{text} (default auto)"
        )
    download = new(
        "download",
        help="fetch the models of a preset, any by name, or a data set",
        description="Fetch models, once; they are found from then on. A download that broke off "
        "goes on from its last whole file. HF_ENDPOINT names a mirror, HF_TOKEN opens gated "
        "models, HF_HOME moves the cache.",
        usage="fastinfer download (--preset PRESET | --target NAME | --dataset NAME) [options]",
    )
    download.add_argument(
        "--preset", metavar="PRESET", help="all its roles; `fastinfer models` lists presets"
    )
    download.add_argument(
        "--dataset", metavar="NAME", help=f"{' or '.join(CORPORA)}: the test part, from the Hub"
    )
    for role in _ROLES:
        download.add_argument(
            f"--{role.value}",
            metavar="NAME",
            help="a model of the Hub, owner/name or owner/name@revision",
        )
