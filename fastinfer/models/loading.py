"""Names to weights: where a model lies, its device and dtype, and that tokenizers agree."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from fastinfer.config import DTYPES, ConfigError
from fastinfer.events import Role
from fastinfer.models import transformer
from fastinfer.models.architectures import UnsupportedArchitecture
from fastinfer.models.base import Decoder
from fastinfer.models.catalog import preset_named
from fastinfer.models.graphed_decoder import with_graphs
from fastinfer.models.hf_model import HFDecoder
from fastinfer.models.sources import (
    LOAD_ERRORS,
    ModelLoadError,
    broken_folder,
    display_name,
    locate,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedModels:
    """Everything that decoding needs, ready."""

    preset: str
    tokenizer: PreTrainedTokenizerBase
    decoders: dict[Role, Decoder]
    vocab_size: int  # real ids, the tokenizer's
    end_ids: frozenset[int]
    folders: dict[Role, Path] = field(default_factory=dict)  # where the weights came from


def load_models(
    preset: str, overrides: Mapping[Role, str], dtype: str = "auto", device: str = "auto"
) -> LoadedModels:
    """Load a preset, with other names or folders for some roles.

    Naming a target leaves the preset's other roles out: they would not share its tokenizer.
    Raises `ConfigError` for a bad option, `ModelLoadError` where a model is missing or does not
    fit.
    """
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    base = {} if Role.TARGET in overrides else preset_named(preset).models
    names = {**base, **overrides}
    folders = {role: locate(role, name) for role, name in names.items()}
    tokenizer = load_tokenizer(Role.TARGET, folders[Role.TARGET])
    for role, folder in folders.items():
        if role is not Role.TARGET:
            check_same_tokenizer(role, load_tokenizer(role, folder), tokenizer)
    decoders = {
        role: load_decoder(role, name, folders[role], chosen_dtype, chosen_device)
        for role, name in names.items()
    }
    vocab_size = len(tokenizer)
    for role, decoder in decoders.items():
        if decoder.vocab_size < vocab_size:
            raise ModelLoadError(
                role.value,
                f"{decoder.name} has {decoder.vocab_size} output rows, but its tokenizer has "
                f"{vocab_size} ids; choose a model made for this tokenizer",
            )
    return LoadedModels(
        preset=preset if Role.TARGET not in overrides else "custom",
        tokenizer=tokenizer,
        decoders=decoders,
        vocab_size=vocab_size,
        end_ids=end_ids(folders[Role.TARGET], tokenizer),
        folders=folders,
    )


def choose_device(device: str) -> torch.device:
    """`auto` is the first GPU where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError(
            "device", f"must be auto, cpu, or a device that this machine has, not {device!r}"
        ) from None
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 where the hardware computes in it, else float32.

    Never float16: small Pythias overflow in it.
    """
    if dtype not in DTYPES:
        raise ConfigError("dtype", f"must be one of {', '.join(DTYPES)}, not {dtype!r}")
    if dtype != "auto":
        return torch.float32 if dtype == "float32" else torch.bfloat16
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if device.type == "cpu" and cpu_has_bfloat16() else torch.float32


def cpu_has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices in hardware (AVX512-BF16 or AMX)."""
    capability = torch.backends.cpu.get_cpu_capability()
    if "AVX512" not in capability:
        return False
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    return "avx512_bf16" in flags or "amx_bf16" in flags


def load_tokenizer(role: Role, folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer beside a model."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    except LOAD_ERRORS as error:
        raise broken_folder(role, folder, error) from error
    return tokenizer


def load_decoder(
    role: Role, name: str, folder: Path, dtype: torch.dtype, device: torch.device
) -> Decoder:
    """A model's weights on the device.

    In our own decoder, or where that does not cover them through transformers; the log says which.
    """
    shown = display_name(name)
    try:
        own = transformer.load_decoder(folder, dtype, device, shown)
    except UnsupportedArchitecture as reason:
        logger.info("%s: %s goes through transformers: %s", role.value, shown, reason.message)
        return HFDecoder(load_pretrained(role, folder, dtype, device), shown)
    logger.info("%s: %s in our own decoder (%s, %s)", role.value, shown, dtype, device)
    return with_graphs(own)


def load_pretrained(role: Role, folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The model as transformers itself runs it."""
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True)
    except LOAD_ERRORS as error:
        raise broken_folder(role, folder, error) from error
    return model.to(device)


def check_same_tokenizer(
    role: Role, tokenizer: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase
) -> None:
    """Refuse a model whose ids mean other tokens; the message names the first that differs."""
    ours, theirs = _by_id(tokenizer), _by_id(target)
    for token_id in range(max(len(ours), len(theirs))):
        a, b = ours.get(token_id), theirs.get(token_id)
        if a != b:
            raise ModelLoadError(
                role.value,
                f"its tokenizer is not the target's: id {token_id} is {a!r} there and {b!r} in the "
                "target; choose a model of the same family",
            )


def _by_id(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def end_ids(folder: Path, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The ids that end a sequence: the config's (one or a list) and the tokenizer's."""
    ids: set[int] = set()
    config: Any = AutoConfig.from_pretrained(folder)
    for value in (config.eos_token_id, tokenizer.eos_token_id):
        if isinstance(value, int):
            ids.add(value)
        elif value is not None:
            ids.update(value)
    return frozenset(ids)
