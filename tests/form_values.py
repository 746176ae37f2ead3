"""The page's form filled in, for tests."""

from __future__ import annotations

from typing import Any

from fastinfer.ui.form import FIELDS

FORM: dict[str, Any] = {
    "method": "cascade", "draft": "model", "rule": "residual", "gamma_policy": "aimd", "gamma": 4,
    "gamma_min": "", "gamma_max": 16, "gamma_threshold": 0.4, "inner_gamma": "", "rounds": 2,
    "max_new_tokens": 40, "temperature": 0.8, "top_k": 0, "top_p": 1, "min_p": 0, "typical_p": 1,
    "repetition_penalty": 1, "stop": "", "seed": "",
    "intermediate": "model", "press": "none", "compression_ratio": 0.5, "max_cache_tokens": "",
    "press_interval": "", "press_on": ["target"], "press_positions": "original", "press_sinks": 4,
    "shadow_every": 0,
}  # fmt: skip


def values(**changes: Any) -> list[Any]:
    assert set(changes) <= set(FIELDS)
    return [{**FORM, **changes}[name] for name in FIELDS]
