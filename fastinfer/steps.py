"""Rounds to steps: tokens get their text; a step waits while a stop may be completing."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterator

from fastinfer.config import DecodeConfig
from fastinfer.decoding.logprobs import logprobs_of
from fastinfer.decoding.loop import Committed
from fastinfer.events import Alternative, CacheSize, Compressed, Role, Shadow, Step, Token
from fastinfer.text import Decode, StopText, StreamDecoder


class StepWriter:
    """The text of one stream: the loop pushes tokens, the engine adds rounds and takes steps."""

    def __init__(self, decode: Decode, prompt_ids: list[int], config: DecodeConfig) -> None:
        self._decode = decode
        self._decoder = StreamDecoder(decode, prompt_ids)
        self._stop = StopText(config.stop)
        self._min_new_tokens = config.min_new_tokens
        self._logprobs = config.logprobs
        self._next_position = len(prompt_ids)
        self._pieces: list[str] = []  # of the round being cut
        # Steps with the length of the text at their end, and the compressions before each.
        self._held: deque[tuple[Step, int, tuple[Compressed, ...]]] = deque()
        self._last = False
        self.text = ""
        self.num_tokens = 0

    def push(self, token_id: int) -> bool:
        """A committed token; True when it completes a stop text."""
        self.num_tokens += 1
        piece = self._decoder.push(token_id)
        self._pieces.append(piece)
        return self._stop.push(piece, self.num_tokens >= self._min_new_tokens)

    def add(
        self,
        committed: Committed,
        cache: dict[Role, CacheSize],
        elapsed_ms: Callable[[], float],
        shadow: Shadow | None = None,
    ) -> None:
        """Make the step of a round whose tokens have all been pushed."""
        self._last = committed.reason is not None
        if self._last and self._stop.found is None:
            rest = self._decoder.flush()
            self._pieces[-1] += rest
            self._stop.push(rest, active=False)
        tokens = self._tokens(committed)
        done = committed.round
        step = Step(
            index=committed.index,
            tokens=tokens,
            rejected=self._rejected(committed),
            stages=done.stages,
            gamma=committed.gamma,
            draft_ms=done.draft_ms + committed.prefill_ms,
            verify_ms=done.verify_ms,
            elapsed_ms=elapsed_ms(),
            cache_tokens={role: size.tokens for role, size in cache.items()},
            cache_bytes={role: size.bytes for role, size in cache.items()},
            cache_allocated={role: size.allocated for role, size in cache.items()},
            shadow=shadow,
        )
        compressed = tuple(
            Compressed(after_step=committed.index - 1, **dataclasses.asdict(done))
            for done in committed.compressed
        )
        self._held.append((step, self._stop.length, compressed))

    def ready(self) -> Iterator[Step | Compressed]:
        """Steps whose text is certain, in order; at the end all that is left, cut at the stop.

        Before each step, the compressions that came before it.
        """
        safe = self._stop.safe_length
        while self._held and (self._last or self._held[0][1] <= safe):
            step, _, compressed = self._held.popleft()
            yield from compressed
            if self._stop.found is not None:
                step = self._cut(step, self._stop.found)
            self.text += step.text
            yield step

    def _cut(self, step: Step, length: int) -> Step:
        """The step with no text beyond `length` characters in all."""
        left = length - len(self.text)
        tokens = []
        for token in step.tokens:
            tokens.append(dataclasses.replace(token, text=token.text[: max(0, left)]))
            left -= len(token.text)
        return dataclasses.replace(step, tokens=tuple(tokens))

    def _tokens(self, committed: Committed) -> tuple[Token, ...]:
        done = committed.round
        verdict, token_ids, origins = done.verdict, done.token_ids, done.origins
        tokens = []
        for i, piece in enumerate(self._pieces):
            own = i == verdict.num_accepted
            tokens.append(
                Token(
                    id=token_ids[i],
                    text=piece,
                    origin=origins[i],
                    position=self._next_position + i,
                    target_prob=done.own_prob if own else verdict.target_probs[i],
                    draft_prob=None if own else verdict.draft_probs[i],
                    accept_prob=None if own else verdict.accept_probs[i],
                )
            )
        self._next_position += len(tokens)
        self._pieces = []
        return tuple(self._with_logprobs(tokens, committed))

    def _with_logprobs(self, tokens: list[Token], committed: Committed) -> list[Token]:
        if self._logprobs is None:
            return tokens
        rows = logprobs_of(committed.round.logits, [token.id for token in tokens], self._logprobs)
        return [
            dataclasses.replace(
                token,
                logprob=row.own,
                alternatives=tuple(
                    Alternative(id=i, text=self._decode([i]), logprob=logprob)
                    for i, logprob in row.top
                ),
            )
            for token, row in zip(tokens, rows, strict=True)
        ]

    def _rejected(self, committed: Committed) -> tuple[Token, ...]:
        """The token that the target refused, unless the sequence ended before it."""
        done = committed.round
        at = done.verdict.num_accepted
        if at == len(done.draft) or committed.num_tokens <= at:
            return ()
        token_id = done.draft.token_ids[at]
        return (
            Token(
                id=token_id,
                text=self._decode([token_id]),
                origin=done.draft.origins[at],
                position=self._next_position - 1,
                target_prob=done.verdict.target_probs[at],
                draft_prob=done.verdict.draft_probs[at],
                accept_prob=done.verdict.accept_probs[at],
            ),
        )
