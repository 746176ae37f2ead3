"""What an engine has loaded, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fastinfer.events import Role


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """What is loaded."""

    preset: str
    models: dict[Role, str]
    dtype: str
    device: str
    context: int  # tokens, prompt and output together
    backends: dict[Role, str] = field(default_factory=dict)  # whose forward each uses
    chat: bool = False  # whether `chat_prompt` works: the target has a chat template
    # Options with which the target's authors sample from it: shown, and used where one asks for it.
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def drafting(self) -> dict[str, Any]:
        """Who drafts where a request does not say: without a draft model, the text itself."""
        return {} if Role.DRAFT in self.models else {"draft": "prompt-lookup"}
