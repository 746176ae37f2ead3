"""A request's body: of limited size and time, JSON, an object, in whole characters."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

from fastapi import Request
from starlette.requests import ClientDisconnect

from fastinfer.http.errors import ApiError, ClientGone

BODY_SECONDS = 30.0


async def read_json(request: Request, max_bytes: int) -> dict[str, Any]:
    """The body's object.

    Raises `ApiError`: 400 for what is no JSON object, 408 where the body takes too long, 413 where
    it is too long, 415 where it does not say that it is JSON. (A page of another site can't send
    that type without being allowed to.)
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "send JSON, with the header Content-Type: application/json")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            data = await _read(request, max_bytes)
    except TimeoutError:
        raise ApiError(408, f"the body must come within {BODY_SECONDS:.0f} s") from None
    except ClientDisconnect:
        raise ClientGone from None
    return _parse(data)


async def _read(request: Request, max_bytes: int) -> bytes:
    too_long = ApiError(413, f"the body must have at most {max_bytes} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise too_long
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            raise too_long
    return bytes(data)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise ApiError(400, "the body must be in UTF-8") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    if b"\\u" in data:
        _require_whole_characters(value)
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")


def _require_whole_characters(value: dict[str, Any]) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError(
            400, "the body holds half of a surrogate pair (\\ud800 to \\udfff)"
        ) from None
