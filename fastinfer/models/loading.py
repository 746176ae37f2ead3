"""Names, folders or models in memory to decoders that fit together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from fastinfer.events import Role
from fastinfer.models import transformer
from fastinfer.models.architectures import UnsupportedArchitecture
from fastinfer.models.base import Decoder
from fastinfer.models.catalog import preset_named
from fastinfer.models.devices import SPLIT, choose_device, choose_dtype
from fastinfer.models.graphed_decoder import with_graphs
from fastinfer.models.hub import Progress
from fastinfer.models.pairing import (
    check_decoders,
    check_same_tokenizer,
    end_ids,
    read_generation_config,
    sampling_defaults,
)
from fastinfer.models.sources import LOAD_ERRORS, broken_folder, display_name, locate

if TYPE_CHECKING:  # its models take two seconds to import, which few need
    from transformers import PreTrainedModel

    TransformersModel = PreTrainedModel

logger = logging.getLogger(__name__)

# For those above this package, which know transformers by this name and the one above only.
Tokenizer = PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class LoadedModels:
    """Everything that decoding needs, ready."""

    preset: str
    tokenizer: PreTrainedTokenizerBase
    decoders: dict[Role, Decoder]
    vocab_size: int  # real ids, the tokenizer's
    end_ids: frozenset[int]
    folders: dict[Role, Path] = field(default_factory=dict)  # where the weights came from
    defaults: dict[str, Any] = field(default_factory=dict)  # how the target's authors sample


def names_of(preset: str, overrides: Mapping[Role, str]) -> dict[Role, str]:
    """What to load: a preset, with other names or folders for some roles.

    Naming a target leaves the preset's other roles out: they would not share its tokenizer.
    """
    if Role.TARGET in overrides:
        return dict(overrides)
    models = preset_named(preset).models
    return {**{role: model.source for role, model in models.items()}, **overrides}


def load_models(
    preset: str,
    overrides: Mapping[Role, str],
    dtype: str = "auto",
    device: str = "auto",
    progress: Progress | None = None,
) -> LoadedModels:
    """Load what `names_of` names, downloading what is not here; `progress` hears how far that is.

    Raises `ConfigError` for a bad option, `ModelLoadError` where a model is missing or does not
    fit.
    """
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    names = names_of(preset, overrides)
    folders = {role: locate(role, name, progress) for role, name in names.items()}
    target = folders[Role.TARGET]
    tokenizer = load_tokenizer(Role.TARGET, target)
    for role, folder in folders.items():
        if role is not Role.TARGET:
            check_same_tokenizer(role, load_tokenizer(role, folder), tokenizer)
    decoders: dict[Role, Decoder] = {}
    for role in sorted(names, key=list(Role).index):  # the target last, into what room is left
        decoders[role] = load_decoder(
            role,
            display_name(names[role], folders[role]),
            folders[role],
            chosen_dtype,
            chosen_device,
            split=device == SPLIT and role is Role.TARGET,
        )
    check_decoders(decoders, len(tokenizer))
    generation = read_generation_config(target)
    config: Any = AutoConfig.from_pretrained(target, local_files_only=True)
    return LoadedModels(
        preset=preset if Role.TARGET not in overrides else "custom",
        tokenizer=tokenizer,
        decoders=decoders,
        vocab_size=len(tokenizer),
        end_ids=end_ids(
            getattr(config, "eos_token_id", None),
            generation.get("eos_token_id"),
            tokenizer.eos_token_id,
        ),
        folders=folders,
        defaults=sampling_defaults(generation),
    )


def models_in_memory(
    models: Mapping[Role, PreTrainedModel], tokenizer: PreTrainedTokenizerBase
) -> LoadedModels:
    """Models that transformers has loaded, of one tokenizer.

    Families of our own decoder get it, with a copy of the weights; the others stay as they are, but
    for `eval()` and gradients switched off. Raises `ModelLoadError` where they don't fit.
    """
    decoders = {role: _decoder_of(role, model) for role, model in models.items()}
    check_decoders(decoders, len(tokenizer))
    target: Any = models[Role.TARGET]
    generation: dict[str, Any] = {}
    if getattr(target, "generation_config", None) is not None:
        generation = target.generation_config.to_diff_dict()
    return LoadedModels(
        preset="custom",
        tokenizer=tokenizer,
        decoders=decoders,
        vocab_size=len(tokenizer),
        end_ids=end_ids(
            getattr(target.config, "eos_token_id", None),
            generation.get("eos_token_id"),
            tokenizer.eos_token_id,
        ),
        defaults=sampling_defaults(generation),
    )


def load_tokenizer(role: Role, folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )
    except LOAD_ERRORS as error:
        raise broken_folder(role, folder, error) from error
    return tokenizer


def load_decoder(
    role: Role,
    name: str,
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    *,
    split: bool = False,
) -> Decoder:
    """A model's weights on the device.

    In our own decoder, or where that does not cover them through transformers; the log says which.
    With `split` through transformers too, over every device of the machine.
    """
    if split:
        return _through_transformers(load_pretrained(role, folder, dtype, device, split=True), name)
    try:
        own = transformer.load_decoder(folder, dtype, device, name)
    except UnsupportedArchitecture as reason:
        logger.info("%s: %s goes through transformers: %s", role.value, name, reason.message)
        return _through_transformers(load_pretrained(role, folder, dtype, device), name)
    logger.info("%s: %s in our own decoder (%s, %s)", role.value, name, dtype, device)
    return with_graphs(own)


def _decoder_of(role: Role, model: PreTrainedModel) -> Decoder:
    """One model in memory behind our protocol."""
    config: Any = model.config
    name = Path(config.name_or_path).name or type(model).__name__
    try:
        own = transformer.from_state_dict(
            config.to_dict(), model.state_dict(), model.dtype, model.device, name
        )
    except UnsupportedArchitecture as reason:
        logger.info("%s: %s goes through transformers: %s", role.value, name, reason.message)
        return _through_transformers(model, name)
    return with_graphs(own)


def _through_transformers(model: PreTrainedModel, name: str) -> Decoder:
    from fastinfer.models.hf_model import HFDecoder  # noqa: PLC0415 - see TYPE_CHECKING above

    return HFDecoder(model, name)


def load_pretrained(
    role: Role, folder: Path, dtype: torch.dtype, device: torch.device, *, split: bool = False
) -> Any:
    """The model as transformers itself runs it; `split` lays its layers out over all devices."""
    options: dict[str, Any] = {"device_map": "auto"} if split else {}
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, local_files_only=True, **options
        )
    except LOAD_ERRORS as error:
        raise broken_folder(role, folder, error) from error
    return model if split else model.to(device)
