"""What `GET /openapi.json` tells of the bodies.

It describes; it does not check. Values are checked by `DecodeConfig.from_mapping`, in the same
words as on the page and the command line.
"""

from __future__ import annotations

from typing import Any

from fastinfer.config import (
    DRAFT_KINDS,
    FLAT_FIELDS,
    GAMMA_POLICIES,
    MAX_SEED,
    METHODS,
    RULE_ALIASES,
    RULES,
)

Schema = dict[str, Any]


def _integer(low: int, high: int | None = None) -> Schema:
    limits = {"minimum": low} if high is None else {"minimum": low, "maximum": high}
    return {"type": "integer", **limits}


def _number(low: float, high: float, *, open_below: bool = False) -> Schema:
    below = "exclusiveMinimum" if open_below else "minimum"
    return {"type": "number", below: low, "maximum": high}


def _either(names: tuple[str, ...]) -> Schema:
    return {"type": "string", "enum": list(names)}


def _object(properties: dict[str, Schema], *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
_DESCRIBED: dict[str, Schema] = {
    "method": _either(METHODS),
    "draft": _either(DRAFT_KINDS),
    "rule": _either((*RULES, *RULE_ALIASES)),
    "max_new_tokens": _integer(1),
    "min_new_tokens": _integer(0),
    "stop": {"anyOf": [TEXT, {"type": "array", "items": TEXT, "maxItems": 16}]},
    "ignore_eos": FLAG,
    "rounds": _integer(1, 64),
    "use_cache": FLAG,
    "logprobs": _integer(0, 20),
    "temperature": _number(0, 100),
    "top_k": _integer(0),
    "top_p": _number(0, 1, open_below=True),
    "min_p": _number(0, 1),
    "typical_p": _number(0, 1, open_below=True),
    "repetition_penalty": _number(0.01, 10),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "seed": _integer(0, MAX_SEED),
    "gamma": _integer(1, 64),
    "gamma_policy": _either(GAMMA_POLICIES),
    "gamma_min": _integer(1, 64),
    "gamma_max": _integer(1, 64),
    "gamma_threshold": _number(0, 1),
    "inner_gamma": _integer(1, 64),
}
OPTIONS: dict[str, Schema] = {name: _DESCRIBED.get(name, {}) for name in FLAT_FIELDS}
STREAMED: dict[str, Schema] = {
    "model": {"type": "string"},
    "stream": FLAG,
    "stream_options": _object({"include_usage": FLAG}),
    "n": {"type": "integer", "enum": [1]},
    "user": {"type": "string"},
}
IDS: Schema = {"type": "array", "items": _integer(0), "minItems": 1}
PART = _object({"type": _either(("text",)), "text": {"type": "string"}}, "type", "text")
MESSAGE = _object(
    {
        "role": _either(("system", "developer", "user", "assistant")),
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": PART}]},
    },
    "role",
    "content",
)

ERROR = _object(
    {"error": _object({"message": {"type": "string"}, "field": {"type": "string"}}, "message")},
    "error",
)
OPENAI_ERROR = _object(
    {
        "error": _object(
            {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
            "message", "type", "param", "code",
        )
    },
    "error",
)  # fmt: skip
REFUSALS = {
    400: "no JSON object, or a request that this model can't serve",
    401: "the API key is missing or wrong",
    408: "the body took too long to come",
    413: "the body is too long",
    415: "the body does not say that it is JSON",
    422: "a value that can't be used; the answer names it",
    429: "too many requests wait; Retry-After says when to come back",
    500: "the engine broke",
    503: "no model is in memory just now; Retry-After says when to come back",
}


def _route(body: Schema | None, error: Schema, *, good: dict[str, Schema], not_found: bool) -> Any:
    statuses = {**REFUSALS, 404: "no such model"} if not_found else REFUSALS
    if body is None:
        statuses = {status: REFUSALS[status] for status in (401, 503)}
    responses: dict[str, Any] = {
        str(status): {
            "description": text,
            "content": {"application/json": {"schema": error}},
        }
        for status, text in sorted(statuses.items())
    }
    responses["200"] = {"content": {kind: {"schema": schema} for kind, schema in good.items()}}
    given: dict[str, Any] = {"responses": responses}
    if body is not None:
        content = {"application/json": {"schema": body}}
        given["requestBody"] = {"required": True, "content": content}
    return given


_JSON: dict[str, Schema] = {"application/json": {"type": "object"}}
_EVENTS: dict[str, Schema] = {"text/event-stream": _object({"data": {"type": "string"}}, "data")}

HEALTH: dict[str, Any] = {}
METRICS = _route(None, ERROR, good={"text/plain": {"type": "string"}}, not_found=False)
PREDICT = _route(_object({"prompt": TEXT, **OPTIONS}, "prompt"), ERROR, good=_JSON, not_found=False)
GENERATE = _route(
    _object({"prompt": TEXT, **OPTIONS}, "prompt"), ERROR, good=_EVENTS, not_found=False
)
MODELS = _route(None, OPENAI_ERROR, good=_JSON, not_found=False)
COMPLETION = _route(
    _object(
        {
            **OPTIONS,
            **STREAMED,
            "prompt": {"anyOf": [TEXT, IDS]},
            "max_tokens": _integer(1),
            "logprobs": _integer(0, 5),
        },
        "prompt",
    ),
    OPENAI_ERROR,
    good={**_JSON, **_EVENTS},
    not_found=True,
)
CHAT = _route(
    _object(
        {
            **OPTIONS,
            **STREAMED,
            "messages": {"type": "array", "items": MESSAGE, "minItems": 1},
            "max_tokens": _integer(1),
            "max_completion_tokens": _integer(1),
            "logprobs": FLAG,
            "top_logprobs": _integer(0, 20),
        },
        "messages",
    ),
    OPENAI_ERROR,
    good={**_JSON, **_EVENTS},
    not_found=True,
)
