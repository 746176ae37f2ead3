"""Fields whose choices depend on which models are loaded, and how they follow another preset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from fastinfer.events import Role
from fastinfer.ui.job import QUIET
from fastinfer.ui.run import TextEngine

Choices = Sequence[tuple[Any, str]]  # how each reads, and its value


@dataclass(frozen=True, kw_only=True)
class RoleField:
    """A radio, dropdown or group of boxes. Where its value is no longer offered, the first of
    `preferred` that is takes its place, else the first choice."""

    field: Component
    choices: Callable[[set[Role]], Choices]
    preferred: tuple[str, ...] = ()

    def update(self, roles: set[Role], value: Any) -> dict[str, Any]:
        """The choices for models of these roles, and another value where that must be."""
        choices = list(self.choices(roles))
        offered = [choice for _, choice in choices]
        if isinstance(value, list):
            kept: Any = [each for each in value if each in offered] or offered
        elif value in offered:
            kept = value
        else:
            kept = next((each for each in self.preferred if each in offered), offered[0])
        return gr.update(choices=choices) | ({} if kept == value else {"value": kept})


def loaded_roles(engine: TextEngine) -> set[Role] | None:
    """Roles of the models in use; None for as long as none is in memory."""
    try:
        return set(engine.info.models)
    except ValueError:
        return None


def follow(trigger: Callable[..., Any], engine: TextEngine, fields: Sequence[RoleField]) -> None:
    """When `trigger`, an event's method, fires: every field offers what the engine in use has."""
    components = [each.field for each in fields]

    def updates(*values: Any) -> list[dict[str, Any]]:
        roles = loaded_roles(engine)
        if roles is None:
            return [gr.skip()] * len(fields)
        return [each.update(roles, value) for each, value in zip(fields, values, strict=True)]

    trigger(updates, components, components, queue=False, **QUIET)
