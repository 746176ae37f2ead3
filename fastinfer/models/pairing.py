"""What models must share to decode together, and what the target's own files say about decoding."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from fastinfer.config import ConfigError, SamplingConfig
from fastinfer.events import Role
from fastinfer.models.base import Decoder
from fastinfer.models.sources import ModelLoadError

# Two tokenizers with one vocabulary may still cut texts differently: by their merges, by how they
# split words, digits and spaces, by what they normalise.
PROBES = (
    "The quick brown fox jumps over the lazy dog, doesn't it?",
    "  two  spaces\tand a tab\n\nnew paragraph\r\n",
    "In 1984, 3.14159 × 1,000,000 = 3141590 (±0.5%).",
    "def f(x):\n    return {'a': x[0] != \"b\"}  # naïve café Straße",
    "北京 東京 서울 Москва Αθήνα القاهرة ไทย",
    "🙂👩‍🚀🏳️‍🌈 e\u0301 ﬁ Ⅳ ½ \u200b\u00a0",
    "UPPER lower CamelCase snake_case http://a.b/c?d=e&f#g",
)

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p")


def check_same_tokenizer(
    role: Role, tokenizer: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase
) -> None:
    """Refuse a model whose ids mean other tokens, or that cuts texts differently.

    The message names the first id that differs.
    """
    ours, theirs = _by_id(tokenizer), _by_id(target)
    for token_id in range(max(len(ours), len(theirs))):
        a, b = ours.get(token_id), theirs.get(token_id)
        if a != b:
            raise ModelLoadError(
                role.value,
                f"its tokenizer is not the target's: id {token_id} is {a!r} there and {b!r} in the "
                "target; choose a model of the same family",
            )
    for text in PROBES:
        _check_probe(role, text, _ids(tokenizer, text), _ids(target, text))


def _check_probe(role: Role, text: str, ours: list[int], theirs: list[int]) -> None:
    if ours == theirs:
        return
    same = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    a, b = (ids[same] if same < len(ids) else None for ids in (ours, theirs))
    raise ModelLoadError(
        role.value,
        f"its tokenizer cuts texts in another way than the target's: token {same} of {text!r} is "
        f"id {a} there and id {b} in the target; choose a model of the same family",
    )


def _by_id(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {token_id: token for token, token_id in tokenizer.get_vocab().items()}


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    # What comes in front of a text is the target's affair alone.
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def check_decoders(decoders: Mapping[Role, Decoder], vocab_size: int) -> None:
    """Refuse models that lack rows for the tokenizer's ids, or that are not in one place."""
    device = decoders[Role.TARGET].device
    for role, decoder in decoders.items():
        if decoder.vocab_size < vocab_size:
            raise ModelLoadError(
                role.value,
                f"{decoder.name} has {decoder.vocab_size} output rows, but its tokenizer has "
                f"{vocab_size} ids; choose a model made for this tokenizer",
            )
        if decoder.device != device:
            raise ModelLoadError(
                role.value,
                f"{decoder.name} is on {decoder.device}, and the target on {device}; move them to "
                "one device",
            )


def end_ids(*sources: object) -> frozenset[int]:
    """The ids that end a sequence, from values that are one id, a list of them, or None."""
    ids: set[int] = set()
    for value in sources:
        if isinstance(value, int):
            ids.add(value)
        elif isinstance(value, Iterable):
            ids.update(value)
    return frozenset(ids)


def read_generation_config(folder: Path) -> dict[str, Any]:
    """A folder's `generation_config.json`; empty where there is none or it is broken."""
    file = folder / "generation_config.json"
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def sampling_defaults(generation_config: Mapping[str, Any]) -> dict[str, Any]:
    """How the model's authors sample from it, under the names of our options.

    As transformers reads them: temperature and filters count only where `do_sample` is true, and
    where it is false the model is decoded greedily. A value that our options refuse is left out.
    """
    values: dict[str, Any] = {}
    sample = generation_config.get("do_sample")
    if sample is False:
        values["temperature"] = 0.0
    names = (*_SAMPLING, "repetition_penalty") if sample else ("repetition_penalty",)
    for name in names:
        value = generation_config.get(name)
        try:
            if value is not None:
                SamplingConfig(**{name: value})
                values[name] = value
        except ConfigError:
            continue
    return values
