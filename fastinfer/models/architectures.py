"""Reads a transformers config into what our own decoder needs to know; refuses what it can't do.

Covered: GPT-NeoX (Pythia), Llama (SmolLM, Llama 2 and 3), Mistral, Qwen2, Qwen3. An option that
would change the result and is not implemented raises `UnsupportedArchitecture`, so that the loader
can fall back on transformers. Defaults of missing options are transformers' own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from huggingface_hub.errors import StrictDataclassError
from transformers import GPTNeoXConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from fastinfer.config import ConfigError
from fastinfer.models.rotary import ROPE_TYPES, RotarySpec

Activation = Literal["gelu", "gelu_tanh", "silu", "relu"]

CONFIGS: dict[str, Any] = {
    "gpt_neox": GPTNeoXConfig,
    "llama": LlamaConfig,
    "mistral": MistralConfig,
    "qwen2": Qwen2Config,
    "qwen3": Qwen3Config,
}

# transformers' names of the activations, by what they compute.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
}


class UnsupportedArchitecture(ConfigError):
    """A model that our own decoder does not cover; transformers may. `field` is the option."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One decoder's shape."""

    family: str  # the config's model_type
    vocab_size: int
    context: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: Activation
    tied: bool  # the output matrix is the embedding
    rotary: RotarySpec
    windows: tuple[int | None, ...]  # per layer: how many tokens back it sees; None is all
    parallel: bool = False  # attention and MLP read the same hidden state (GPT-J's residual)
    gated: bool = True  # MLP: act(gate) * up
    norm: Literal["layer", "rms"] = "rms"
    qk_norm: bool = False


def read_architecture(config: Mapping[str, Any]) -> Architecture:
    """From the mapping in a `config.json` (or `model.config.to_dict()`).

    Raises `UnsupportedArchitecture` naming the option that is not covered.
    """
    family = config.get("model_type")
    if family not in CONFIGS:
        raise UnsupportedArchitecture(
            "model_type", f"must be one of {', '.join(CONFIGS)}, not {family!r}"
        )
    if config.get("quantization_config"):
        raise UnsupportedArchitecture("quantization_config", "quantized weights are not covered")
    # from_dict moves entries out of nested mappings: give it a copy.
    try:
        full = CONFIGS[family].from_dict(copy.deepcopy(dict(config)))
    except (StrictDataclassError, ValueError, TypeError, KeyError) as error:
        raise UnsupportedArchitecture(
            "config", f"is not a valid {family} config: {error}"
        ) from error
    rotary = _rotary(full, family)
    if family == "gpt_neox":
        return _neox(full, rotary)
    return _llama_like(full, family, rotary)


def _activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise UnsupportedArchitecture(
            "hidden_act", f"must be one of {', '.join(ACTIVATIONS)}, not {name!r}"
        )
    return ACTIVATIONS[name]


def _rotary(full: Any, family: str) -> RotarySpec:
    values: Mapping[str, Any] = full.rope_parameters
    kind = values.get("rope_type")
    if kind not in ROPE_TYPES:  # a mapping per layer type has none, and is refused as well
        raise UnsupportedArchitecture(
            "rope_type", f"must be one of {', '.join(ROPE_TYPES)}, not {kind!r}"
        )
    head_dim = getattr(full, "head_dim", None) or full.hidden_size // full.num_attention_heads
    share = values.get("partial_rotary_factor", 1.0)
    if family != "gpt_neox" and share != 1.0:
        raise UnsupportedArchitecture("partial_rotary_factor", f"must be 1 here, not {share}")
    dim = int(head_dim * share)
    if dim < 2 or dim % 2:
        raise UnsupportedArchitecture(
            "partial_rotary_factor", f"rotates {dim} values: must be even"
        )
    scaling = {k: v for k, v in values.items() if isinstance(v, (int, float, bool))}
    scaling.setdefault("max_position_embeddings", full.max_position_embeddings)
    return RotarySpec(dim=dim, theta=float(values["rope_theta"]), kind=kind, scaling=scaling)


def _neox(full: Any, rotary: RotarySpec) -> Architecture:
    return Architecture(
        family="gpt_neox",
        vocab_size=full.vocab_size,
        context=full.max_position_embeddings,
        hidden_size=full.hidden_size,
        intermediate_size=full.intermediate_size,
        num_layers=full.num_hidden_layers,
        num_heads=full.num_attention_heads,
        num_kv_heads=full.num_attention_heads,
        head_dim=full.hidden_size // full.num_attention_heads,
        norm_eps=full.layer_norm_eps,
        activation=_activation(full.hidden_act),
        tied=bool(full.tie_word_embeddings),
        rotary=rotary,
        windows=(None,) * full.num_hidden_layers,
        parallel=bool(full.use_parallel_residual),
        gated=False,
        norm="layer",
    )


def _llama_like(full: Any, family: str, rotary: RotarySpec) -> Architecture:
    heads = full.num_attention_heads
    return Architecture(
        family=family,
        vocab_size=full.vocab_size,
        context=full.max_position_embeddings,
        hidden_size=full.hidden_size,
        intermediate_size=full.intermediate_size,
        num_layers=full.num_hidden_layers,
        num_heads=heads,
        num_kv_heads=full.num_key_value_heads or heads,
        head_dim=getattr(full, "head_dim", None) or full.hidden_size // heads,
        norm_eps=full.rms_norm_eps,
        activation=_activation(full.hidden_act),
        tied=bool(full.tie_word_embeddings),
        rotary=rotary,
        windows=_windows(full, family),
        qk_norm=family == "qwen3",
    )


def _windows(full: Any, family: str) -> tuple[int | None, ...]:
    """Mistral slides in every layer; Qwen in the layers that its config marks."""
    layers: int = full.num_hidden_layers
    if family == "mistral":
        every: int | None = full.sliding_window
        return (every,) * layers
    kinds = getattr(full, "layer_types", None) or ["full_attention"] * layers
    unknown = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if unknown or len(kinds) != layers:
        raise UnsupportedArchitecture("layer_types", f"can't be {unknown or kinds}")
    window: int | None = getattr(full, "sliding_window", None)
    return tuple(window if kind == "sliding_attention" else None for kind in kinds)
