"""One round of speculation: propose, verify, commit.

The main loop repeats it with the target. The middle tier of a cascade is a proposer that repeats it
with the intermediate model: draft / intermediate / target is nesting, not a third algorithm. A
proposer that proposes nothing makes the same round a plain autoregressive step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from fastinfer.decoding.protocols import Draft, LanguageModel, Outcome, Proposer
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.token_law import TokenLaw
from fastinfer.decoding.verification import Rule, Verdict
from fastinfer.events import Origin, Role, Stage


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round committed, and the verifier's laws behind it.

    Given all before it, committed token i follows `laws[i]` exactly, which is why an outer stage
    may take the tokens of an inner round as a draft.
    """

    role: Role  # the verifier's
    draft: Draft
    verdict: Verdict
    block_laws: tuple[TokenLaw, ...]  # num_drafted + 1
    block_logits: Tensor  # [num_drafted + 1, vocab], what the laws were made from; may be
    # overwritten by the verifier's next pass
    draft_ms: float
    verify_ms: float

    @property
    def laws(self) -> tuple[TokenLaw, ...]:
        """Of the committed tokens: num_accepted + 1."""
        return self.block_laws[: self.verdict.num_accepted + 1]

    @property
    def logits(self) -> Tensor:
        """What those laws were made from, [num_accepted + 1, vocab]."""
        return self.block_logits[: self.verdict.num_accepted + 1]

    @property
    def own_prob(self) -> float:
        """Of the verifier's own token, under its law."""
        return self.block_laws[self.verdict.num_accepted].probability(self.verdict.token_id)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The accepted tokens, then the verifier's own."""
        return (*self.draft.token_ids[: self.verdict.num_accepted], self.verdict.token_id)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Where each committed token came from."""
        accepted = self.verdict.num_accepted
        if self.role is Role.INTERMEDIATE:
            own = Origin.INTERMEDIATE
        elif len(self.draft) == 0:
            own = Origin.TARGET
        else:
            own = Origin.BONUS if accepted == len(self.draft) else Origin.RESAMPLED
        return (*self.draft.origins[:accepted], own)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The proposer's own verifications, then this one."""
        own = Stage(
            role=self.role,
            num_drafted=len(self.draft),
            num_tested=self.verdict.num_tested,
            num_accepted=self.verdict.num_accepted,
        )
        return (*self.draft.stages, own)

    @property
    def outcome(self) -> Outcome:
        """What the gamma policy of this verifier learns."""
        return Outcome(
            num_drafted=len(self.draft),
            num_accepted=self.verdict.num_accepted,
            confidences=self.draft.confidences,
            draft_ms=self.draft_ms,
            verify_ms=self.verify_ms,
            copied=self.draft.copied,
        )


def speculate(
    verifier: LanguageModel,
    proposer: Proposer,
    tokens: Sequence[int],
    limit: int,
    law: Law,
    rule: Rule,
) -> Round:
    """One round after `tokens`, with at most `limit` drafted tokens; commits 1 to `limit` + 1.

    Leaves every cache holding nothing but a prefix of the committed sequence.
    """
    # 1. Propose.
    start = time.perf_counter()
    draft = proposer.propose(tokens, limit)
    drafted = time.perf_counter()

    # 2. Verify: one pass gives the verifier's law at every position of the block and after it.
    block = [*tokens, *draft.token_ids]
    logits, laws = laws_after(verifier, block, len(draft) + 1, law)
    verdict = rule.verify(laws, draft, len(tokens))
    accepted = verdict.num_accepted

    # 3. Forget what was refused. The verifier's own token follows in the next pass.
    verifier.rollback(len(tokens) + accepted)
    proposer.rollback(len(tokens) + accepted)
    verified = time.perf_counter()
    return Round(
        role=verifier.role,
        draft=draft,
        verdict=verdict,
        block_laws=laws,
        block_logits=logits,
        draft_ms=(drafted - start) * 1000.0,
        verify_ms=(verified - drafted) * 1000.0,
    )


def laws_after(
    model: LanguageModel, tokens: Sequence[int], count: int, law: Law
) -> tuple[Tensor, tuple[TokenLaw, ...]]:
    """The model's logits [count, vocab] and laws after the last `count` prefixes of `tokens`.

    Raises FloatingPointError, naming the model, when its logits are not finite.
    """
    try:
        logits = model.forward(tokens, count)
        return logits, law(logits, tokens)
    except FloatingPointError as error:
        raise FloatingPointError(f"the {model.role.value} model's {error}") from None
