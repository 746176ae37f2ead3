"""What the routes share: the engine's runner, the limits, the figures, the key."""

from __future__ import annotations

import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from fastinfer.config import ConfigError
from fastinfer.events import Event
from fastinfer.http.body import read_json
from fastinfer.http.errors import ApiError, Shape, as_api_error
from fastinfer.http.metrics import Metrics
from fastinfer.http.requests import Ask
from fastinfer.http.runner import Runner, ServedEngine, until_first_step
from fastinfer.http.streams import EventStream, sse, unless_gone
from fastinfer.serve_options import ServeConfig

RETRY_LOADING_S = 5

Render = Callable[[Event], Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class Service:
    """What answers requests. `current` gives the engine in use, which may change in between."""

    current: Callable[[], ServedEngine]
    runner: Runner
    config: ServeConfig
    metrics: Metrics

    def engine(self) -> ServedEngine:
        """The engine for a whole request; raises `ApiError` 503 while there is none."""
        try:
            return self.current()
        except ConfigError as error:
            wait = {"Retry-After": str(RETRY_LOADING_S)}
            raise ApiError(503, error.message, headers=wait) from None

    async def body(self, request: Request) -> dict[str, Any]:
        """The request's JSON object; raises `ApiError`."""
        return await read_json(request, self.config.max_body_bytes)

    async def require_key(self, request: Request) -> None:
        """Raise `ApiError` 401 unless the request has the key, where there is one."""
        key = self.config.api_key
        if key is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        # Compared in constant time, so that an answer's time tells nothing about the key.
        good = hmac.compare_digest(given.strip().encode(), key.encode())
        if kind.lower() != "bearer" or not good:
            raise ApiError(
                401,
                "this server asks for its API key: send the header Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def whole(
        self,
        request: Request,
        engine: ServedEngine,
        ask: Ask,
        add: Callable[[Event], object],
    ) -> None:
        """Run to the end, with every event handed to `add`; stop where the client goes."""

        async def fold() -> None:
            async with aclosing(self.runner.events(engine, ask.prompt, ask.config)) as events:
                async for event in events:
                    add(event)

        await unless_gone(request.receive, fold())

    async def stream(
        self,
        request: Request,
        engine: ServedEngine,
        ask: Ask,
        render: Render,
        shape: Shape,
        last: bytes = b"",
    ) -> Response:
        """Events as server-sent events, each through `render`, and `last` at the end.

        What fails before the first token raises here, and so gets a status of its own. What fails
        later can only be told in the stream: an event in the shape of an error.
        """
        events = self.runner.events(engine, ask.prompt, ask.config)
        try:
            head = await unless_gone(request.receive, until_first_step(events))
        except BaseException:
            await events.aclose()
            raise
        return EventStream(_chunks(head, events, render, shape, last))


async def _chunks(
    head: Sequence[Event],
    events: AsyncGenerator[Event, None],
    render: Render,
    shape: Shape,
    last: bytes,
) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        try:
            async for event in _chained(head, events):
                for content in render(event):
                    yield sse(content)
        except Exception as error:
            yield sse(shape(as_api_error(error)))
        yield last


async def _chained(
    head: Sequence[Event], events: AsyncGenerator[Event, None]
) -> AsyncIterator[Event]:
    for event in head:
        yield event
    async for event in events:
        yield event
