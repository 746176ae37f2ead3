"""Requests by every route and method, and what makes an answer whole: for scripts/load_check.py."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

PROMPTS = (
    "The old man looked at the sea and",
    "It was a cold morning in March when",
    "She opened the letter with a trembling hand,",
    "In the beginning of the year",
)
METHODS = ("autoregressive", "speculative", "cascade")
# Greedy, and drawn so that the text depends on target, prompt, options and seed alone.
LAWS = ({"temperature": 0}, {"temperature": 0.8, "rule": "coupled", "seed": 7})
NUM_TOKENS = 24


@dataclass(frozen=True)
class Request:
    """A prompt and its options under their flat names."""

    name: str
    prompt: str
    options: dict[str, Any]

    @property
    def alone(self) -> str:
        """Requests that share this have the same text."""
        return json.dumps([self.prompt, {**self.options, "method": None}])


REQUESTS = tuple(
    Request(f"{method}, {law}, {prompt}", prompt, {**law, "method": method})
    for method, law, prompt in itertools.product(METHODS, LAWS, PROMPTS)
)


@dataclass(frozen=True)
class Answer:
    """A whole answer's text, or when to come back."""

    text: str = ""
    retry_after_s: int | None = None


async def ask(client: httpx.AsyncClient, request: Request, kind: str) -> Answer:
    """The whole answer by one of `KINDS`. Raises `ValueError` for one that is not whole."""
    path, stream = KINDS[kind]
    ours = path in ("/predict", "/generate")
    budget = {"max_new_tokens" if ours else "max_tokens": NUM_TOKENS}
    body = {"prompt": request.prompt, **request.options, **budget}
    got = await client.post(path, json=body if ours else {**body, "stream": stream})
    if got.status_code == 429:
        return Answer(retry_after_s=int(got.headers["retry-after"]))
    if got.status_code != 200:
        raise ValueError(f"status {got.status_code}: {got.text}")
    return Answer(READERS[path, stream](got.text))


def _predicted(said: str) -> str:
    answer = json.loads(said)
    _require_whole(answer["finish_reason"], len(answer["tokens"]))
    return str(answer["text"])


def _generated(said: str) -> str:
    *events, finished = map(json.loads, _events(said))
    tokens = [token for event in events if event["type"] == "step" for token in event["tokens"]]
    _require_whole(finished["reason"], len(tokens))
    text = "".join(token["text"] for token in tokens)
    if text != finished["text"]:
        raise ValueError("the tokens' texts are not the text")
    return text


def _completed(said: str) -> str:
    answer = json.loads(said)
    _require_whole(answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"])
    return str(answer["choices"][0]["text"])


def _streamed(said: str) -> str:
    *chunks, done = _events(said)
    if done != "[DONE]":
        raise ValueError("the stream has no end")
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    tokens = [
        token for chunk in chunks for token in json.loads(chunk)["fastinfer"].get("tokens", [])
    ]
    _require_whole(choices[-1]["finish_reason"], len(tokens))
    return "".join(choice["text"] for choice in choices)


def _events(said: str) -> Iterator[str]:
    lines = (line for line in said.split("\n") if line)
    return (line.removeprefix("data: ") for line in lines)


def _require_whole(reason: str | None, num_tokens: int) -> None:
    if reason != "length" or num_tokens != NUM_TOKENS:
        raise ValueError(f"it ends after {num_tokens} tokens with {reason}")


KINDS = {  # name -> route, and whether its answer is asked for as a stream
    "/predict": ("/predict", False),
    "/generate": ("/generate", False),
    "/v1/completions": ("/v1/completions", False),
    "/v1/completions, streamed": ("/v1/completions", True),
}
READERS = {
    ("/predict", False): _predicted,
    ("/generate", False): _generated,
    ("/v1/completions", False): _completed,
    ("/v1/completions", True): _streamed,
}
