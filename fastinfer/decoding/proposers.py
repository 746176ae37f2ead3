"""Who guesses: nobody, a model, an inner round of speculation (cascade), or the prompt itself."""

from __future__ import annotations

from collections.abc import Sequence

from fastinfer.decoding.protocols import Draft, GammaController, LanguageModel, Proposer
from fastinfer.decoding.rounds import Round, laws_after, speculate
from fastinfer.decoding.sampling import Law, confidences
from fastinfer.decoding.token_law import TokenLaw
from fastinfer.decoding.verification import Rule
from fastinfer.events import Origin, Stage

_NO_DRAFT = Draft(token_ids=(), laws=(), origins=())


class NoDraft:
    """Proposes nothing: speculation becomes autoregressive decoding."""

    models: tuple[LanguageModel, ...] = ()

    def prefill(self, tokens: Sequence[int]) -> None:
        """Nothing to read."""

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """An empty draft."""
        return _NO_DRAFT

    def rollback(self, num_tokens: int) -> None:
        """Nothing to forget."""


class ModelProposer:
    """A smaller model, drawing token by token from its own law.

    The law that it draws from is the law that it reports, filters included. It stops after an
    end-of-sequence token: what follows one would be thrown away.
    """

    def __init__(
        self,
        model: LanguageModel,
        law: Law,
        rule: Rule,
        gamma: GammaController,
        end_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.model = model
        self.law = law
        self.rule = rule
        self.gamma = gamma
        self.end_ids = end_ids

    @property
    def models(self) -> tuple[LanguageModel, ...]:
        """The draft model."""
        return (self.model,)

    def prefill(self, tokens: Sequence[int]) -> None:
        """Read the prompt, as far as the model's context goes."""
        if len(tokens) <= self.model.context:
            self.model.forward(tokens, 1)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Up to `limit` draws; fewer where the model's context ends."""
        limit = min(limit, self.model.context - len(tokens) + 1)
        sequence = list(tokens)
        drawn_from: list[TokenLaw] = []
        sure: list[float] = []
        while len(drawn_from) < limit and self.gamma.keep_drafting(sure):
            logits, laws = laws_after(self.model, sequence, 1, self.law)
            token = self.rule.draw(laws[0], len(sequence))
            drawn_from.append(laws[0])
            if self.gamma.per_token:  # nobody else asks
                sure.extend(confidences(logits, laws))
            sequence.append(token)
            if token in self.end_ids:
                break
        if not drawn_from:
            return _NO_DRAFT
        ids = tuple(sequence[len(tokens) :])
        return Draft(
            token_ids=ids,
            laws=tuple(drawn_from),
            origins=(Origin.DRAFT,) * len(ids),
            confidences=tuple(sure),
        )

    def rollback(self, num_tokens: int) -> None:
        """Pass it on."""
        self.model.rollback(num_tokens)


class CascadeProposer:
    """A middle model that speculates with its own proposer; its tokens follow its own law exactly.

    Inside, a rejected token is replaced from the residual (intermediate - draft)+. Drawing from the
    intermediate itself instead, as TriForce's code does, would give tokens of another law than the
    one reported, and the target's test would no longer be exact. `inner` sizes the inner blocks; at
    most `rounds` of them make up one proposal, and `outer` may end it sooner. Whether a further
    round runs depends on what is already drawn, never on the token to come.
    """

    def __init__(
        self,
        model: LanguageModel,
        proposer: Proposer,
        law: Law,
        rule: Rule,
        inner: GammaController,
        outer: GammaController,
        rounds: int,
        end_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.model = model
        self.proposer = proposer
        self.law = law
        self.rule = rule
        self.inner = inner
        self.outer = outer
        self.rounds = rounds
        self.end_ids = end_ids
        self._nobody = NoDraft()

    @property
    def models(self) -> tuple[LanguageModel, ...]:
        """The inner models, then the intermediate."""
        return (*self.proposer.models, self.model)

    def prefill(self, tokens: Sequence[int]) -> None:
        """Both read the prompt."""
        self.proposer.prefill(tokens)
        if len(tokens) <= self.model.context:
            self.model.forward(tokens, 1)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Inner rounds until `limit` tokens, `rounds` rounds, or an end-of-sequence token."""
        limit = min(limit, self.model.context - len(tokens) + 1)
        sequence = list(tokens)
        done: list[Round] = []
        sure: list[float] = []
        while len(done) < self.rounds and self.outer.keep_drafting(sure):
            room = limit - (len(sequence) - len(tokens))
            # A last pass of the intermediate for a single token costs more than it brings.
            if room < 1 or (done and room < 2):
                break
            allowed = min(self.inner.gamma, room - 1)
            source = self.proposer if allowed else self._nobody
            inner = speculate(self.model, source, sequence, allowed, self.law, self.rule)
            done.append(inner)
            sequence.extend(inner.token_ids)
            if self.outer.per_token:
                sure.extend(confidences(inner.logits, inner.laws))
            self.inner.update(inner.outcome)
            if not self.end_ids.isdisjoint(inner.token_ids):
                break
        if not done:
            return _NO_DRAFT
        laws: list[TokenLaw] = []
        origins: list[Origin] = []
        stages: list[Stage] = []
        for inner in done:
            laws.extend(inner.laws)
            origins.extend(inner.origins)
            stages.extend(inner.stages)
        return Draft(
            token_ids=tuple(sequence[len(tokens) :]),
            laws=tuple(laws),
            origins=tuple(origins),
            confidences=tuple(sure),
            stages=tuple(stages),
        )

    def rollback(self, num_tokens: int) -> None:
        """Both forget."""
        self.model.rollback(num_tokens)
        self.proposer.rollback(num_tokens)


class PromptLookupProposer:
    """Copies what followed the last occurrence of the sequence's own ending.

    No second model: good where the output repeats its input. The proposal is certain, so its law is
    one-hot and the general rule applies as it is. Method:
    github.com/apoorvumang/prompt-lookup-decoding. Deviations: the latest occurrence is taken, not
    the first; in running text it is the likelier one. A single token that came before is not copied
    behind: in novels at temperature 0.8 one such copy in eight was accepted, behind two tokens two
    in eight. A copy that reaches the end of the sequence goes on with itself, as a loop does.
    """

    models: tuple[LanguageModel, ...] = ()

    def __init__(
        self, vocab_size: int, gamma: GammaController, max_ngram: int = 3, min_ngram: int = 2
    ) -> None:
        self.vocab_size = vocab_size
        self.gamma = gamma
        self.max_ngram = max_ngram
        self.min_ngram = min_ngram
        self._seen: dict[tuple[int, ...], int] = {}  # n-gram -> where what follows it begins
        self._read = 0

    def prefill(self, tokens: Sequence[int]) -> None:
        """Index the prompt."""
        self._index(tokens)

    def _index(self, tokens: Sequence[int]) -> None:
        """Note every n-gram that something follows; tokens here are committed for good."""
        for end in range(max(self._read, 1), len(tokens)):
            for size in range(self.min_ngram, min(self.max_ngram, end) + 1):
                self._seen[tuple(tokens[end - size : end])] = end
        self._read = max(self._read, len(tokens))

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """What followed the longest ending that occurred before."""
        self._index(tokens)
        for size in range(min(self.max_ngram, len(tokens)), self.min_ngram - 1, -1):
            start = self._seen.get(tuple(tokens[len(tokens) - size :]))
            if start is None:
                continue
            count, period = 0, len(tokens) - start
            while count < limit and self.gamma.keep_drafting((1.0,) * count):
                count += 1
            if count == 0:
                break
            ids = tuple(tokens[start + i % period] for i in range(count))
            return Draft(
                token_ids=ids,
                laws=tuple(TokenLaw.one_hot(token, self.vocab_size) for token in ids),
                origins=(Origin.DRAFT,) * count,
                confidences=(1.0,) * count,
                copied=True,
            )
        return _NO_DRAFT

    def rollback(self, num_tokens: int) -> None:
        """Nothing: the index holds committed tokens only."""


class LookupFirstProposer:
    """The text itself where it repeats three tokens, a draft model elsewhere.

    Which of the two drafts depends on committed tokens only, so each block has one law that is
    known before any of it is drawn. A copied block costs nothing and can be long; the draft model
    reads it when it is asked again. flashspec's default strategy is of this kind.
    """

    def __init__(self, draft: ModelProposer) -> None:
        self.lookup = PromptLookupProposer(draft.model.vocab_size, draft.gamma, min_ngram=3)
        self.draft = draft

    @property
    def models(self) -> tuple[LanguageModel, ...]:
        """The draft model."""
        return self.draft.models

    def prefill(self, tokens: Sequence[int]) -> None:
        """Both read the prompt."""
        self.lookup.prefill(tokens)
        self.draft.prefill(tokens)

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """A copy where there is something to copy, else draws."""
        copied = self.lookup.propose(tokens, limit)
        return copied if len(copied) else self.draft.propose(tokens, limit)

    def rollback(self, num_tokens: int) -> None:
        """Both forget."""
        self.lookup.rollback(num_tokens)
        self.draft.rollback(num_tokens)
