"""What a request may ask for: frozen configs, checked in one place for page, HTTP and CLI."""

from __future__ import annotations

from fastinfer.config.checks import ConfigError
from fastinfer.config.compression import (
    DEFAULT_RATIO,
    POSITIONS,
    PRESS_NAMES,
    PRESS_ROLES,
    SELF_COMPRESSION,
    UNEVEN_PRESSES,
    CompressionConfig,
    Positions,
    PressName,
    PressRole,
)
from fastinfer.config.gamma import (
    DEFAULT_FLOORS,
    GAMMA_POLICIES,
    MAX_GAMMA,
    GammaConfig,
    GammaPolicy,
)
from fastinfer.config.request import (
    DRAFT_KINDS,
    DTYPES,
    FLAT_FIELDS,
    INTERMEDIATE_KINDS,
    MAX_LOGPROBS,
    MAX_STOPS,
    METHODS,
    MODEL_DRAFTS,
    RULE_ALIASES,
    RULES,
    DecodeConfig,
    DraftKind,
    Dtype,
    IntermediateKind,
    Method,
    Rule,
)
from fastinfer.config.sampling import MAX_SEED, SamplingConfig

__all__ = [
    "DEFAULT_FLOORS", "DEFAULT_RATIO", "DRAFT_KINDS", "DTYPES", "FLAT_FIELDS", "GAMMA_POLICIES",
    "INTERMEDIATE_KINDS", "MAX_GAMMA", "MAX_LOGPROBS", "MAX_SEED", "MAX_STOPS", "METHODS",
    "MODEL_DRAFTS", "POSITIONS", "PRESS_NAMES", "PRESS_ROLES", "RULES", "RULE_ALIASES",
    "SELF_COMPRESSION", "UNEVEN_PRESSES", "CompressionConfig", "ConfigError", "DecodeConfig",
    "DraftKind", "Dtype", "GammaConfig", "GammaPolicy", "IntermediateKind", "Method", "Positions",
    "PressName", "PressRole", "Rule", "SamplingConfig",
]  # fmt: skip
