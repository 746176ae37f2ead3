"""The routes that OpenAI's clients call: /v1/completions, /v1/chat/completions, /v1/models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from fastinfer.config import ConfigError
from fastinfer.events import Role
from fastinfer.http.errors import ApiError, Json, openai_shape, route_class
from fastinfer.http.openai_answers import Answer, model_card
from fastinfer.http.requests import Ask, chat_ask, completion_ask, read_messages
from fastinfer.http.runner import ServedEngine
from fastinfer.http.schemas import CHAT, COMPLETION, MODELS
from fastinfer.http.service import Service
from fastinfer.http.streams import DONE


def openai_router(service: Service) -> APIRouter:
    """The routes, bound to one service."""
    router = APIRouter(
        prefix="/v1",
        route_class=route_class(service.metrics.count_request),
        dependencies=[Depends(service.require_key)],
    )
    begin = int(time.time())

    @router.get("/models", openapi_extra=MODELS)
    async def models() -> Response:
        """The one model that is loaded."""
        card = model_card(service.engine().info.preset, begin)
        return Json({"object": "list", "data": [card]})

    @router.post("/completions", openapi_extra=COMPLETION)
    async def completions(request: Request) -> Response:
        """Continue a prompt."""
        body = await service.body(request)
        engine = service.engine()
        model = _model(engine, body)
        ask = completion_ask(body, service.config.max_new_tokens, engine.info.drafting)
        return await _answer(service, request, engine, ask, Answer(ask, model, chat=False))

    @router.post("/chat/completions", openapi_extra=CHAT)
    async def chat_completions(request: Request) -> Response:
        """Answer a chat."""
        body = await service.body(request)
        engine = service.engine()
        model = _model(engine, body)
        messages = read_messages(body)
        try:
            prompt = await service.runner.chat_prompt(engine, messages)
        except ConfigError as error:  # a base model, or a template that refuses these messages
            raise ApiError(400, error.message, field=error.field) from None
        ask = chat_ask(prompt, body, service.config.max_new_tokens, engine.info.drafting)
        return await _answer(service, request, engine, ask, Answer(ask, model, chat=True))

    return router


async def _answer(
    service: Service, request: Request, engine: ServedEngine, ask: Ask, answer: Answer
) -> Response:
    if ask.stream:
        return await service.stream(request, engine, ask, answer.chunks, openai_shape, last=DONE)
    await service.whole(request, engine, ask, answer.add)
    return Json(answer.whole())


def _model(engine: ServedEngine, body: Mapping[str, Any]) -> str:
    """The model that the body names: the preset or its target; none means the loaded one."""
    info = engine.info
    name = body.get("model", info.preset)
    if not isinstance(name, str):
        raise ConfigError("model", f"must be a text, not {name!r}")
    if name not in (info.preset, info.models[Role.TARGET]):
        raise ApiError(
            404,
            f"{name!r} is not loaded; this server has {info.preset!r}",
            field="model",
            code="model_not_found",
        )
    return name
