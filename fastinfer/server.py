"""HTTP beside the page. For now: GET /health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

import fastinfer

if TYPE_CHECKING:
    from fastinfer.engine import Engine


def api_router(engine: Engine) -> APIRouter:
    """The routes, bound to one engine."""
    router = APIRouter()

    @router.get("/health")
    def health() -> dict[str, Any]:
        """Say that the engine is loaded, and which."""
        info = engine.info
        return {
            "status": "ok",
            "version": fastinfer.__version__,
            "preset": info.preset,
            "models": {role.value: name for role, name in info.models.items()},
            "device": info.device,
            "dtype": info.dtype,
        }

    return router
