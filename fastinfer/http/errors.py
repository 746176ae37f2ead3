"""Every failure as a status and a sentence, in the shape that each API's clients read.

No traceback leaves: what nobody foresaw is logged and becomes one sentence.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from fastinfer.config import ConfigError
from fastinfer.http.line import LineFull

log = logging.getLogger(__name__)

LONGEST_MESSAGE = 500  # characters; a message may quote what was sent
CLIENT_GONE = 499  # as nginx counts it; nobody reads the answer
BROKEN = "The server failed on this request. Its log says why."


class ApiError(Exception):
    """A refusal: `field` names what to change, where there is something to change."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.field = field
        self.code = code
        self.headers = dict(headers or {})


class ClientGone(Exception):
    """The client has closed the connection."""


class Json(Response):
    """JSON that any client can read: no NaN, and no half of a surrogate pair."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return encode(content)


def encode(content: Any) -> bytes:
    """A value as JSON in UTF-8, on one line."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def as_api_error(error: Exception) -> ApiError:
    """What to tell the client about an exception; logs what nobody foresaw."""
    match error:
        case ApiError():
            return error
        case ConfigError():
            return ApiError(422, error.message, field=error.field)
        case LineFull():
            wait = {"Retry-After": str(error.retry_after_s)}
            return ApiError(429, f"{error}", code="rate_limit_exceeded", headers=wait)
        case ClientGone():
            return ApiError(CLIENT_GONE, "the client has gone")
        case RecursionError():
            return ApiError(400, "the body is nested too deeply")
        case FloatingPointError():  # the engine's own sentence: weights or a dtype at fault
            log.error("a request failed: %s", error)
            return ApiError(500, f"The model broke off: {error}")
        case _:
            log.error("a request failed", exc_info=error)
            return ApiError(500, BROKEN)


Shape = Callable[[ApiError], dict[str, Any]]


def plain_shape(error: ApiError) -> dict[str, Any]:
    """As our own routes tell it."""
    named = {} if error.field is None else {"field": _short(error.field)}
    return {"error": {"message": _short(error.message), **named}}


OPENAI_TYPES = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
}


def openai_shape(error: ApiError) -> dict[str, Any]:
    """As OpenAI's clients read it."""
    message = error.message if error.field is None else f"{error.field}: {error.message}"
    return {
        "error": {
            "message": _short(message),
            "type": OPENAI_TYPES.get(error.status, "invalid_request_error"),
            "param": None if error.field is None else _short(error.field),
            "code": error.code,
        }
    }


def shape_of(path: str) -> Shape:
    """Which API an address belongs to."""
    return openai_shape if path.startswith("/v1/") else plain_shape


def answer(error: ApiError, shape: Shape) -> Response:
    """The response."""
    return Json(shape(error), status_code=error.status, headers=error.headers)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}…"


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def route_class(count: Callable[[str, int], None]) -> type[APIRoute]:
    """Routes that answer every failure in their API's shape, and count their answers."""

    class SafeRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()
            shape = shape_of(self.path)

            async def safe(request: Request) -> Response:
                try:
                    response = await handle(request)
                except HTTPException:
                    raise
                except Exception as error:
                    response = answer(as_api_error(error), shape)
                count(self.path, response.status_code)
                return response

            return safe

    return SafeRoute


async def http_exception(request: Request, error: Exception) -> Response:
    """FastAPI's own refusals, such as 404 and 405, in the address's shape."""
    assert isinstance(error, HTTPException), "registered for it"
    told = ApiError(error.status_code, str(error.detail), headers=error.headers)
    return answer(told, shape_of(request.url.path))
