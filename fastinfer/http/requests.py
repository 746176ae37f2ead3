"""Bodies to requests: the prompt, the options, and how the answer is wanted.

Values are checked by `DecodeConfig.from_mapping`, as on the page and the command line. What remains
for here is what only HTTP has: names of OpenAI's that mean something else or nothing at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastinfer.config import ConfigError, DecodeConfig

COMPLETION_TOKENS = 16  # what OpenAI's clients get where they ask for no number
MAX_COMPLETION_LOGPROBS = 5
MAX_CHAT_LOGPROBS = 20
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

# Names of OpenAI's that change nothing about the text.
IGNORED = (
    "metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier",
    "store", "user",
)  # fmt: skip

# Names of OpenAI's that would change it, and the values that leave it as it is.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "n": (1,),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}
Options = Mapping[str, Any]
BUDGETS = ("max_completion_tokens", "max_tokens", "max_new_tokens")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request as the runner takes it, and what its answer should hold."""

    prompt: str | Sequence[int]
    config: DecodeConfig
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False


def plain_ask(body: Mapping[str, Any], most_tokens: int, usual: Options | None = None) -> Ask:
    """`{"prompt": …}` and any option of `DecodeConfig.from_mapping` beside it.

    `usual` holds options for where the body names none, here and below.
    """
    rest = _given(usual, body)
    prompt = _text("prompt", rest.pop("prompt", None))
    return Ask(prompt=prompt, config=_config(rest, most_tokens, DecodeConfig().max_new_tokens))


def completion_ask(body: Mapping[str, Any], most_tokens: int, usual: Options | None = None) -> Ask:
    """The body of OpenAI's completions, with our options beside theirs."""
    rest = _given(usual, body)
    prompt = _one_prompt(rest.pop("prompt", None))
    logprobs = rest.pop("logprobs", None)
    if logprobs is not None:
        rest["logprobs"] = _count("logprobs", logprobs, MAX_COMPLETION_LOGPROBS)
    return _openai_ask(prompt, rest, most_tokens, COMPLETION_TOKENS)


def chat_ask(
    prompt: str | Sequence[int],
    body: Mapping[str, Any],
    most_tokens: int,
    usual: Options | None = None,
) -> Ask:
    """The body of OpenAI's chat completions, whose messages have become `prompt`."""
    rest = _given(usual, body)
    rest.pop("messages", None)
    wanted = _flag("logprobs", rest.pop("logprobs", None))
    top = rest.pop("top_logprobs", None)
    if top is not None and not wanted:
        raise ConfigError("top_logprobs", "needs logprobs to be true")
    if wanted:
        rest["logprobs"] = 0 if top is None else _count("top_logprobs", top, MAX_CHAT_LOGPROBS)
    return _openai_ask(prompt, rest, most_tokens, most_tokens)


def read_messages(body: Mapping[str, Any]) -> list[dict[str, str]]:
    """The chat's messages: `role` and `content`, both texts. Raises `ConfigError`."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ConfigError("messages", "must be a list of at least one message")
    return [_message(index, message) for index, message in enumerate(messages)]


def _message(index: int, message: object) -> dict[str, str]:
    at = f"messages[{index}]"
    if not isinstance(message, dict):
        raise ConfigError(at, "must be an object with role and content")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ConfigError(f"{at}.role", f"must be one of {', '.join(ROLES)}, not {role!r}")
    if message.get("tool_calls"):
        raise ConfigError(f"{at}.tool_calls", "are not supported here")
    return {"role": ROLES[role], "content": _content(f"{at}.content", message.get("content"))}


def _content(field: str, content: object) -> str:
    """A text, or a list of parts that are all texts."""
    if not isinstance(content, list):
        return _text(field, content)
    texts = []
    for index, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ConfigError(f"{field}[{index}]", "must be a part of type text; no other is known")
        texts.append(_text(f"{field}[{index}].text", part.get("text")))
    return "".join(texts)


def _given(usual: Options | None, body: Mapping[str, Any]) -> dict[str, Any]:
    """What the body says, null being nothing, over what is usual."""
    return {**(usual or {}), **{n: value for n, value in body.items() if value is not None}}


def _openai_ask(
    prompt: str | Sequence[int], rest: dict[str, Any], most_tokens: int, default_tokens: int
) -> Ask:
    rest.pop("model", None)  # the route has checked it
    for name in IGNORED:
        rest.pop(name, None)
    for name, allowed in NEUTRAL.items():
        _require_neutral(name, rest.pop(name, None), allowed)
    stream = _flag("stream", rest.pop("stream", None))
    include_usage = _include_usage(rest.pop("stream_options", None), stream)
    wanted = rest.get("logprobs") is not None
    return Ask(
        prompt=prompt,
        config=_config(rest, most_tokens, default_tokens),
        stream=stream,
        include_usage=include_usage,
        logprobs=wanted,
    )


def _config(rest: dict[str, Any], most_tokens: int, default_tokens: int) -> DecodeConfig:
    """The options, within the server's limit. A refusal names the budget as the client did."""
    given = {name: value for name in BUDGETS if (value := rest.pop(name, None)) is not None}
    name, *others = given or ("max_new_tokens",)
    if any(given[other] != given[name] for other in others):
        raise ConfigError(name, f"and {others[0]} differ; give one of them")
    rest["max_new_tokens"] = given.get(name, min(default_tokens, most_tokens))
    try:
        config = DecodeConfig.from_mapping(rest)
        if config.max_new_tokens > most_tokens:
            raise ConfigError(
                "max_new_tokens",
                f"must be at most {most_tokens} on this server, not {config.max_new_tokens}",
            )
    except ConfigError as error:
        if error.field == "max_new_tokens":
            raise ConfigError(name, error.message) from None
        raise
    return config


def _require_neutral(name: str, value: object, allowed: tuple[Any, ...]) -> None:
    if value is None or any(value == each and type(value) is type(each) for each in allowed):
        return
    known = f"; only {', '.join(map(repr, allowed))} is" if allowed else "; leave it out"
    raise ConfigError(name, f"{value!r} is not supported here{known}")


def _one_prompt(prompt: object) -> str | list[int]:
    """A text, a list of token ids, or a list of one of these."""
    if isinstance(prompt, list):
        if len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            return _one_prompt(prompt[0]) if isinstance(prompt[0], str) else _ids(prompt[0])
        if prompt and isinstance(prompt[0], (str, list)):
            raise ConfigError("prompt", "must be one prompt; send several in requests of their own")
        return _ids(prompt)
    return _text("prompt", prompt)


def _ids(prompt: list[Any]) -> list[int]:
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in prompt):
        raise ConfigError(
            "prompt", "must be a text or a list of token ids, which are whole numbers"
        )
    return prompt


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(
            field, "is missing" if value is None else f"must be a text, not {value!r}"
        )
    return value


def _flag(field: str, value: object) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConfigError(field, f"must be true or false, not {value!r}")
    return value


def _count(field: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ConfigError(field, f"must be a whole number from 0 to {most}, not {value!r}")
    return value


def _include_usage(options: object, stream: bool) -> bool:
    if options is None:
        return False
    if not stream:
        raise ConfigError("stream_options", "needs stream to be true")
    if not isinstance(options, dict):
        raise ConfigError("stream_options", f"must be an object, not {options!r}")
    return _flag("stream_options.include_usage", options.get("include_usage"))
