"""Events to the objects that OpenAI's clients read, whole or in chunks.

Everything of ours lies in one extra field, `fastinfer`: each token's origin, the options in full,
the seed, and the run's figures.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from fastinfer.events import Event, Finished, FinishReason, Started, Step, Token
from fastinfer.http.requests import Ask
from fastinfer.metrics import RunStats

FINISH_REASONS: dict[FinishReason, str] = {
    "eos": "stop", "stop": "stop", "length": "length", "context": "length", "time": "length",
}  # fmt: skip


class Answer:
    """One answer: a fold of the run's events. `chat` chooses the kind of object."""

    def __init__(self, ask: Ask, model: str, *, chat: bool) -> None:
        self._ask = ask
        self._chat = chat
        self._stats = RunStats()
        self._tokens: list[Token] = []
        self._length = 0  # of their text
        self._head = {
            "id": ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
            "created": int(time.time()),
            "model": model,
        }

    def add(self, event: Event) -> None:
        """Take in an event."""
        self._stats.add(event)
        if isinstance(event, Step):
            self._tokens += event.tokens
            self._length += sum(len(token.text) for token in event.tokens)

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        """Take in an event; what a streaming client gets for it."""
        offset = self._length
        self.add(event)
        match event:
            case Started():
                return [self._chunk(self._delta("", first=True), None)] if self._chat else []
            case Step():
                return [self._step_chunk(event, offset)]
            case Finished():
                return self._last_chunks(event)
        return []

    def whole(self) -> dict[str, Any]:
        """The answer to a client that does not stream."""
        finished = self._finished()
        content: dict[str, Any] = (
            {"message": {"role": "assistant", "content": finished.text, "refusal": None}}
            if self._chat
            else {"text": finished.text}
        )
        choice = {
            "index": 0,
            **content,
            "logprobs": self._logprobs(self._tokens, 0),
            "finish_reason": FINISH_REASONS[finished.reason],
        }
        return {
            **self._head,
            "object": "chat.completion" if self._chat else "text_completion",
            "choices": [choice],
            "usage": self._usage(),
            "fastinfer": {"tokens": _origins(self._tokens), **self._run()},
        }

    def _step_chunk(self, step: Step, offset: int) -> dict[str, Any]:
        logprobs = self._logprobs(step.tokens, offset)
        extra = {"tokens": _origins(step.tokens)}
        return self._chunk(self._delta(step.text), None, logprobs=logprobs, extra=extra)

    def _last_chunks(self, finished: Finished) -> list[dict[str, Any]]:
        delta: dict[str, Any] = {"delta": {}} if self._chat else {"text": ""}
        reason = FINISH_REASONS[finished.reason]
        chunks = [self._chunk(delta, reason, extra=self._run())]
        if self._ask.include_usage:
            chunks.append({**self._chunk(delta, None), "choices": [], "usage": self._usage()})
        return chunks

    def _chunk(
        self,
        content: dict[str, Any],
        reason: str | None,
        *,
        logprobs: dict[str, Any] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            **self._head,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "choices": [{"index": 0, **content, "logprobs": logprobs, "finish_reason": reason}],
        }
        if self._ask.include_usage:
            chunk["usage"] = None
        if extra is not None:
            chunk["fastinfer"] = extra
        return chunk

    def _delta(self, text: str, *, first: bool = False) -> dict[str, Any]:
        if not self._chat:
            return {"text": text}
        return {"delta": {"role": "assistant", "content": text} if first else {"content": text}}

    def _logprobs(self, tokens: Sequence[Token], offset: int) -> dict[str, Any] | None:
        if not self._ask.logprobs:
            return None
        if self._chat:
            return {"content": [_chat_logprob(token) for token in tokens], "refusal": None}
        return self._completion_logprobs(tokens, offset)

    def _completion_logprobs(self, tokens: Sequence[Token], offset: int) -> dict[str, Any]:
        """`text_offset` is where a token begins in the answer's text, which begins at `offset`."""
        *offsets, _ = accumulate((len(token.text) for token in tokens), initial=offset)
        tops = [{each.text: each.logprob for each in token.alternatives} for token in tokens]
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": tops if self._ask.config.logprobs else None,
            "text_offset": offsets,
        }

    def _usage(self) -> dict[str, int]:
        assert self._stats.started is not None, "a run begins with Started"
        prompt, made = self._stats.started.num_prompt_tokens, self._stats.num_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": made,
            "total_tokens": prompt + made,
        }

    def _run(self) -> dict[str, Any]:
        """What is ours about the run as a whole."""
        assert self._stats.started is not None, "a run begins with Started"
        return {
            "timings": self._stats.to_mapping(),
            "seed": self._stats.started.seed,
            "options": self._stats.started.options,
        }

    def _finished(self) -> Finished:
        assert self._stats.finished is not None, "a run ends with Finished"
        return self._stats.finished


def _origins(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    """Where each token came from."""
    return [{"id": token.id, "text": token.text, "origin": token.origin} for token in tokens]


def _chat_logprob(token: Token) -> dict[str, Any]:
    return {
        **_logprob(token.text, token.logprob),
        "top_logprobs": [_logprob(each.text, each.logprob) for each in token.alternatives],
    }


def _logprob(text: str, logprob: float | None) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def model_card(name: str, created: int) -> dict[str, Any]:
    """A model as `GET /v1/models` lists it."""
    return {"id": name, "object": "model", "created": created, "owned_by": "fastinfer"}
