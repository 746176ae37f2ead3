"""The loop: rounds until an end of sequence, a stop text, or the end of budget or context."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fastinfer.decoding.proposers import NoDraft
from fastinfer.decoding.protocols import GammaController, LanguageModel, Proposer
from fastinfer.decoding.rounds import Round, speculate
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.verification import Rule
from fastinfer.events import Compression, FinishReason


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When to stop. `should_stop` sees every committed token once, in order."""

    max_new_tokens: int
    end_ids: frozenset[int]
    should_stop: Callable[[int], bool]


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A round after the cut: only its first `num_tokens` tokens count.

    `compressed` is what was done to caches before it, which its time includes.
    """

    index: int
    round: Round
    num_tokens: int
    gamma: int
    prefill_ms: float
    reason: FinishReason | None
    compressed: tuple[Compression, ...] = ()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens that count."""
        return self.round.token_ids[: self.num_tokens]


def decode(
    target: LanguageModel,
    proposer: Proposer,
    prompt: Sequence[int],
    law: Law,
    rule: Rule,
    gamma: GammaController,
    limits: Limits,
) -> Iterator[Committed]:
    """Yield rounds. Round 0 is the prefill: all read the prompt, the target commits one token.

    Caller's duty: `prompt` is not empty and shorter than the target's context.
    """
    tokens = list(prompt)
    nobody = NoDraft()
    start = time.perf_counter()
    proposer.prefill(tokens)
    prefill_ms = (time.perf_counter() - start) * 1000.0
    index = 0
    reason: FinishReason | None = None
    while reason is None:
        # 1. Compress what is due. Nothing here has a rejected token any more. Behind the prompt, a
        # draft without a part in the round waits: it would have to read what it has not seen yet.
        allowed = 0 if index == 0 else gamma.gamma
        source = proposer if allowed else nobody
        models = (target, *(proposer if index == 1 else source).models)
        compressed = maintain(models, tokens) if index else ()

        # 2. One round. The budget less one, so that the target's own token always fits; no round
        # crosses the count of tokens where some cache is compressed next.
        room = min(limits.max_new_tokens, target.context - len(prompt))
        left = room - (len(tokens) - len(prompt))
        if index > 0:
            left = min(left, *(m.room_before_trigger(len(tokens)) for m in models))
        done = speculate(target, source, tokens, min(allowed, left - 1), law, rule)

        # 3. Cut at the first token that ends the sequence; nothing beyond it is committed.
        count = 0
        for token in done.token_ids:
            count += 1
            tokens.append(token)
            reason = _end(token, len(tokens) - len(prompt), room, limits)
            if reason is not None:
                break

        # 4. Learn, and hand over.
        if index > 0:
            gamma.update(done.outcome)
        yield Committed(
            index=index, round=done, num_tokens=count, prefill_ms=prefill_ms, reason=reason,
            gamma=len(done.draft) if gamma.per_token else allowed, compressed=compressed,
        )  # fmt: skip
        index, prefill_ms = index + 1, 0.0


def maintain(models: Sequence[LanguageModel], tokens: Sequence[int]) -> tuple[Compression, ...]:
    """Let each model compress its cache where that is due after these committed tokens."""
    done = (model.maintain(tokens) for model in models)
    return tuple(each for each in done if each is not None)


def _end(token: int, generated: int, room: int, limits: Limits) -> FinishReason | None:
    """Why generation ends with this token, if it does. End and stop beat length."""
    stopped = limits.should_stop(token)
    if token in limits.end_ids:
        return "eos"
    if stopped:
        return "stop"
    if generated >= limits.max_new_tokens:
        return "length"
    return "context" if generated >= room else None
