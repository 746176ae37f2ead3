"""What the engine says while it decodes: immutable plain values, the only way out of it.

The command line, HTTP, the page, the benchmark and the tests are folds over this stream. Every
token carries the origin that the engine's own decision gave it; nobody ever searches for it in
text.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

FinishReason = Literal["eos", "stop", "length", "context", "time"]  # time: a server's limit


class Role(StrEnum):
    """Which model."""

    DRAFT = "draft"
    INTERMEDIATE = "intermediate"
    TARGET = "target"


class Origin(StrEnum):
    """Where a committed token came from."""

    DRAFT = "draft"  # drafted, accepted by every verifier
    INTERMEDIATE = "intermediate"  # the middle model's own token, accepted by the target
    RESAMPLED = "resampled"  # the target's correction after a rejection
    BONUS = "bonus"  # the target's free token after a fully accepted block
    TARGET = "target"  # a plain step of the target: nothing was drafted


class CacheSize(NamedTuple):
    """What one model's KV cache holds."""

    tokens: int  # entries per layer
    bytes: int  # of those entries: keys and values of all layers
    allocated: int  # bytes kept in memory for it, spare room and whatever a press needs included


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A token that might have come, with its log-probability."""

    id: int
    text: str
    logprob: float


@dataclass(frozen=True, kw_only=True)
class Token:
    """One token. Probabilities are those of this token under the laws that were really used.

    `draft_prob` is the proposer's, `accept_prob` is min(1, target / draft) under the residual rule,
    and 1 or 0 under the coupled rule; both are None for a token of the target's own. `text` is what
    this token made visible: whole characters only, so a token that ends inside a character has ""
    and the one that completes it carries the character.

    `logprob` and `alternatives`, only where the request asks for them, are of the target's own law:
    before temperature, penalties and filters.
    """

    id: int
    text: str
    origin: Origin
    position: int  # in the whole sequence, prompt included
    target_prob: float
    draft_prob: float | None = None
    accept_prob: float | None = None
    logprob: float | None = None  # natural logarithm
    alternatives: tuple[Alternative, ...] = ()  # the likeliest tokens, in order


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One verification pass: what one verifier did with one block. accepted <= tested <= drafted.

    A drafted token after the first rejection was never tested, so acceptance is accepted / tested.
    """

    role: Role
    num_drafted: int
    num_tested: int
    num_accepted: int


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """What the full cache would have said at the positions of one round of a lossy run.

    Laws as the models give them, before temperature and filters.
    """

    num_positions: int
    kl_nats: float  # mean of KL(full cache || compressed cache)
    top1_agreement: float  # share of positions where both like the same token best


@dataclass(frozen=True, kw_only=True)
class Started:
    """The request is taken. `models` maps each role in use to its name.

    `lossless` says whether the text follows the law of the target with its whole cache.
    """

    method: str
    rule: str
    num_prompt_tokens: int
    max_new_tokens: int
    seed: int
    models: dict[Role, str]
    dtype: str
    device: str
    lossless: bool = True
    lossless_reason: str = "the text follows the target's own law"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One round: the tokens that it committed and what they cost.

    Step 0 is the prefill: every model reads the prompt and the target commits one token, so that
    `elapsed_ms` of step 0 is the time to the first token (TTFT) for every method alike.
    Times are the engine's own clock, which stands still while nobody asks for the next event.
    """

    index: int
    tokens: tuple[Token, ...]
    rejected: tuple[Token, ...]  # the draft token that the target refused, if one was
    stages: tuple[Stage, ...]  # each verification in order: the intermediate's, then the target's
    gamma: int  # tokens that the policy had drafted in this round; 0 is a plain step
    draft_ms: float
    verify_ms: float
    elapsed_ms: float  # since the request began
    cache_tokens: dict[Role, int]  # entries held per layer
    cache_bytes: dict[Role, int]  # bytes of those entries
    # Bytes kept in memory for them: spare room too, and queries that a press will ask for.
    cache_allocated: dict[Role, int] = dataclasses.field(default_factory=dict)
    shadow: Shadow | None = None  # in the rounds that a lossy run compares

    @property
    def text(self) -> str:
        """What it adds to the text."""
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True, kw_only=True)
class Compression:
    """A cache was compressed. Entries per layer (their mean where layers differ), and bytes."""

    role: Role
    entries_before: int
    entries_after: int
    bytes_before: int  # of the entries held
    bytes_after: int
    allocated_before: int  # of all that is kept in memory for them
    allocated_after: int
    compress_ms: float  # inside the time of the step that follows


@dataclass(frozen=True, kw_only=True)
class Compressed(Compression):
    """The event of it: it came after step `after_step`, and before the next."""

    after_step: int


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end. `text` is the whole generated text, equal to the tokens' texts joined."""

    reason: FinishReason
    text: str
    num_tokens: int
    elapsed_ms: float


Event = Started | Step | Compressed | Finished

_TYPES = {Started: "started", Step: "step", Compressed: "compressed", Finished: "finished"}


def to_json(event: Event) -> dict[str, Any]:
    """A JSON-ready mapping with its `type`."""
    return {"type": _TYPES[type(event)], **dataclasses.asdict(event)}
