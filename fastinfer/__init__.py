"""fastinfer: watch a language model decode faster, and check that nothing was lost.

engine = fastinfer.load("nano")
print(engine.generate("The old man looked at the sea and").text)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastinfer.config import ConfigError, DecodeConfig, GammaConfig, SamplingConfig
    from fastinfer.engine import Engine, Generation, load
    from fastinfer.events import Event, Finished, Origin, Role, Started, Step, Token

__version__ = "0.1.0"

__all__ = [
    "ConfigError", "DecodeConfig", "Engine", "Event", "Finished", "GammaConfig", "Generation",
    "Origin", "Role", "SamplingConfig", "Started", "Step", "Token", "load",
]  # fmt: skip

_HOMES = ("config", "events", "engine")


def __getattr__(name: str) -> Any:
    """A public name, from its own module: torch is imported only where it is needed."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"fastinfer.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
