"""What the loop needs from others: a language model, a proposer, a gamma policy.

The sequence is the truth and caches trail: a model is always given the whole sequence and feeds
whatever suffix it has not seen. So nobody ever has to know that "the draft missed the bonus token".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fastinfer.decoding.token_law import TokenLaw
from fastinfer.events import CacheSize, Compression, Origin, Role, Stage


class LanguageModel(Protocol):
    """One model and its cache, for one request."""

    role: Role
    vocab_size: int  # real ids only; padded embedding rows are cut off

    @property
    def context(self) -> int:
        """Longest sequence that it can read; grows where compression makes places free again."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence that the cache covers."""
        ...

    def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
        """Logits [num_logits, vocab], float32, after each of the last `num_logits` prefixes of
        `tokens`.

        Feeds `tokens[num_tokens:]`, which must be at least `num_logits` long: call `rollback` first
        wherever the cache may hold tokens that are no longer in the sequence.
        """
        ...

    def rollback(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens. Nothing to do where fewer are held."""
        ...

    def cache_size(self) -> CacheSize:
        """What the cache holds now."""
        ...

    def room_before_trigger(self, num_tokens: int) -> int:
        """How many tokens may be committed after `num_tokens` before `maintain` must be called.

        A round must not commit more: so a decision is always made at the same committed count,
        whatever the rounds were. A very large number where nothing is to come.
        """
        ...

    def maintain(self, tokens: Sequence[int]) -> Compression | None:
        """Compress the cache if that is due; `tokens` is the committed sequence.

        Called between rounds only. The cache then covers all but the last of `tokens`, none of
        which will ever be rolled back.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A proposed block, and the law that each of its tokens was really drawn from.

    Exactness rests on that: given all before it, token i was drawn from `laws[i]`. Whether there
    is a further token may depend on what came before, but never on that token's own value.
    """

    token_ids: tuple[int, ...]
    laws: tuple[TokenLaw, ...]
    origins: tuple[Origin, ...]
    # Of each token, see `sampling.confidences`; none where the gamma policy asks for none.
    confidences: tuple[float, ...] = ()
    stages: tuple[Stage, ...] = ()  # verifications inside the proposer (cascade)
    copied: bool = False  # from the sequence itself: no model was asked

    def __len__(self) -> int:
        return len(self.token_ids)


class Proposer(Protocol):
    """Anything that can guess the next tokens."""

    @property
    def models(self) -> tuple[LanguageModel, ...]:
        """The models behind it, for their cache figures."""
        ...

    def prefill(self, tokens: Sequence[int]) -> None:
        """Read the prompt, so that the first round pays for drafting only."""
        ...

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """At most `limit` tokens to follow `tokens`; none is a fine answer."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Forget all but the first `num_tokens` tokens."""
        ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a gamma policy may learn from a round. Times in ms; `confidences` as in `Draft`."""

    num_drafted: int
    num_accepted: int
    confidences: tuple[float, ...]
    draft_ms: float
    verify_ms: float
    copied: bool = False  # the draft came from no model: its time says nothing of one


class GammaController(Protocol):
    """How many tokens to draft next. One lives as long as its request."""

    per_token: bool  # whether `keep_drafting` decides, so that `gamma` is a ceiling only

    @property
    def gamma(self) -> int:
        """The most tokens to draft in the coming round; 0 is a plain step of the verifier."""
        ...

    def keep_drafting(self, confidences: Sequence[float]) -> bool:
        """Whether to draft one more, after tokens drawn with these confidences.

        It sees the past only, never the token to come: so the output law stays exact.
        """
        ...

    def update(self, outcome: Outcome) -> None:
        """Learn from a round, drafted or plain."""
        ...
