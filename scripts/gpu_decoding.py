"""Parts of `scripts.gpu_check` about whole runs: first token, our methods, transformers."""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fastinfer.config import GammaConfig, SamplingConfig
from fastinfer.decoding.gamma import controller_for
from fastinfer.decoding.loop import Committed, Limits, decode
from fastinfer.decoding.proposers import ModelProposer, NoDraft
from fastinfer.decoding.protocols import Draft, Proposer
from fastinfer.decoding.sampling import Law
from fastinfer.decoding.token_law import TokenLaw
from fastinfer.decoding.verification import ResidualRule, Verdict
from fastinfer.evaluation.contenders import Task
from fastinfer.evaluation.peers import Transformers
from fastinfer.events import Role
from fastinfer.models.base import Decoder
from fastinfer.models.session import Session
from scripts.gpu_lab import Lab, Model

PLANTED = 0.8
GAMMAS = (3, 5, 7)
RUNS = 3  # the first warms up


class PlantedRule(ResidualRule):
    """Does all the work of the residual rule, then accepts by a coin of its own.

    Random models agree on nothing, and a real pair of these sizes can't be fetched: so the rate is
    set, and only the time is real.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._coin = random.Random(seed)

    def verify(self, laws: Sequence[TokenLaw], draft: Draft, position: int) -> Verdict:
        """The verdict with another number of accepted tokens."""
        verdict = super().verify(laws, draft, position)
        accepted = 0
        while accepted < len(draft) and self._coin.random() < PLANTED:
            accepted += 1
        return dataclasses.replace(
            verdict, num_accepted=accepted, num_tested=min(accepted + 1, len(draft))
        )


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its rounds, and when each was over (seconds from the request)."""

    rounds: list[Committed]
    ends: list[float]

    def figures(self) -> dict[str, float]:
        """The first token and the time per token after it, in ms, and what the rounds were like."""
        later = self.rounds[1:]
        tokens = sum(done.num_tokens for done in later)
        return {
            "ttft_ms": self.ends[0] * 1000.0,
            "tpot_ms": (self.ends[-1] - self.ends[0]) * 1000.0 / tokens,
            "tokens_per_round": tokens / len(later),
            "draft_ms": statistics.median(done.round.draft_ms for done in later),
            "verify_ms": statistics.median(done.round.verify_ms for done in later),
        }


def run(lab: Lab, target: Decoder, draft: Decoder | None, gamma: int, new_tokens: int) -> Run:
    """Decode at temperature 1 with our loop; without a draft it is autoregressive."""
    vocab = target.vocab_size
    prompt = lab.tokens(lab.sizes.prompt, vocab).tolist()
    law = Law(SamplingConfig(temperature=1.0), num_prompt_tokens=len(prompt))
    rule = PlantedRule(0)
    policy = controller_for(GammaConfig(policy="constant", initial=gamma))
    lab.synchronize()
    begin = time.perf_counter()
    proposer: Proposer = NoDraft()
    if draft is not None:
        proposer = ModelProposer(Session(draft, Role.DRAFT, vocab), law, rule, policy)
    limits = Limits(max_new_tokens=new_tokens, end_ids=frozenset(), should_stop=lambda token: False)
    rounds, ends = [], []
    session = Session(target, Role.TARGET, vocab)
    for done in decode(session, proposer, prompt, law, rule, policy, limits):
        rounds.append(done)
        ends.append(time.perf_counter() - begin)
    return Run(rounds, ends)


def first_token(lab: Lab, figures: dict[str, Any]) -> None:
    """From nothing to the first token, once per model: making it, reading a prompt, its graphs."""
    for name in lab.names:
        lab.synchronize()
        begin = time.perf_counter()
        model = lab.model(name)
        lab.synchronize()
        loaded = time.perf_counter()
        first = run(lab, model.graphed, None, 1, 2)
        again = run(lab, model.graphed, None, 1, 2)
        figures[name] = {
            "loading_seconds": loaded - begin,
            "from_loaded_to_first_token_seconds": first.ends[0],
            "second_request_to_first_token_seconds": again.ends[0],
            "graphs": model.graphed.num_graphs,
        }


def sampling(lab: Lab, figures: dict[str, Any]) -> None:
    """Microseconds of what a round does beside its forwards, by rows of logits.

    `device_draw` is what a draw that leaves the law on the device would take.
    """
    vocab = lab.model(lab.names[0]).eager.vocab_size
    rule = ResidualRule(0)
    for rows in lab.sizes.blocks:
        logits = torch.randn(rows, vocab, device=lab.device)
        law = Law(SamplingConfig(temperature=1.0), num_prompt_tokens=1)
        tokens = [1] * (rows + 1)
        laws = law(logits, tokens)
        there = logits.softmax(-1)
        work: dict[str, Callable[[], object]] = {
            "law": partial(law, logits, tokens),
            "draw": partial(rule.draw, laws[0], 0),
            "device_draw": partial(_race, there[0]),
            "largest_probability": partial(_largest, there[0]),
            "laws_to_cpu": there.cpu,
        }
        figures[f"{rows} rows"] = {
            f"{name}_us": lab.median_ms(run) * 1000.0 for name, run in work.items()
        }


def _largest(law: Tensor) -> float:
    return float(law.max())


def _race(law: Tensor) -> int:
    """An exponential race: a token of probability 0 never wins."""
    return int((law / torch.empty_like(law, dtype=torch.float64).exponential_()).argmax())


def decoding(lab: Lab, figures: dict[str, Any]) -> None:
    """TPOT of our loop: autoregressive, and speculative with planted acceptance."""
    draft, *targets = lab.names
    for name in lab.names:
        figures[name] = {"autoregressive": _usual(lab, lab.model(name), None, 1)}
    for name in targets:
        own = figures[name]
        tpot = own["autoregressive"]["tpot_ms"]
        for gamma in GAMMAS:
            found = _usual(lab, lab.model(name), lab.model(draft), gamma)
            found["speedup"] = tpot / found["tpot_ms"]
            own[f"speculative with {draft}, gamma {gamma}, planted acceptance {PLANTED}"] = found


def _usual(lab: Lab, target: Model, draft: Model | None, gamma: int) -> dict[str, float]:
    """Medians over the runs after the first."""
    small = None if draft is None else draft.graphed
    found = [
        run(lab, target.graphed, small, gamma, lab.sizes.new_tokens).figures() for _ in range(RUNS)
    ][1:]
    return {key: statistics.median(figures[key] for figures in found) for key in found[0]}


def transformers(lab: Lab, figures: dict[str, Any]) -> None:
    """`generate`, plain and assisted, on the same weights and prompts, greedy."""
    draft, *targets = lab.names
    contenders: list[tuple[str, str, str | None]] = [(name, "generate", None) for name in lab.names]
    contenders += [(name, f"assisted by {draft}", draft) for name in targets]
    for name, label, assistant in contenders:
        model = lab.model(name)
        helper = None if assistant is None else lab.model(assistant).theirs
        task = Task(
            prompt_ids=tuple(lab.tokens(lab.sizes.prompt, model.eager.vocab_size).tolist()),
            max_new_tokens=max(2, lab.sizes.new_tokens // 2), temperature=0.0, seed=0,
        )  # fmt: skip
        found = [Transformers(label, model.theirs, helper).run(task) for _ in range(RUNS)][1:]
        figures.setdefault(name, {})[label] = {
            "ttft_ms": statistics.median(measured.ttft_ms for measured in found),
            "tpot_ms": statistics.median(measured.tpot_ms for measured in found),
        }
