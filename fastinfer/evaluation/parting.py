"""Where two exact texts part: is the gap between the two tokens within rounding?

A block of several tokens and a single one take different ways through the device's arithmetic, so
a model's logits differ in their last digits. Where two tokens are as good as equal, that decides
which one comes. Here both candidates are scored again at that place by the target, over several
ways of reading the same text, in blocks as decoding does; how far those scores differ is the
rounding, measured. What blocks leave in the cache is rounded too, so it isn't enough to vary the
last of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fastinfer.config import DecodeConfig
from fastinfer.decoding.rounds import laws_after
from fastinfer.decoding.token_law import TokenLaw
from fastinfer.decoding.verification import CoupledRule
from fastinfer.engine import Engine
from fastinfer.events import Role

BLOCKS = (1, 2, 3, 5, 9)  # tokens that a pass over generated text reads
REREAD = 256  # last tokens that are read so: all of most texts; what is before them, in one pass
UNITS = 4.0  # in the last place of the larger logit: a score is off by as much as its logit


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Two candidates for one place, and what the target's scores say.

    A score is what the draw takes the largest of: the logit under greedy decoding, log(law) minus
    the log of the shared noise under the coupled rule. `gap` is the smallest distance over all ways
    of reading, `rounding` what rounding alone explains.
    """

    index: int  # of the generated token
    tokens: tuple[int, int]
    scores: tuple[float, float]  # by single tokens, as the baseline reads
    gap: float
    rounding: float

    @property
    def within_rounding(self) -> bool:
        """Whether either token is as good an answer."""
        return self.gap <= self.rounding


def explain(
    engine: Engine,
    prompt: Sequence[int],
    ours: Sequence[int],
    theirs: Sequence[int],
    index: int,
    config: DecodeConfig,
) -> Parting | None:
    """Score both tokens at `index`; None where one text is only longer, or the rule draws anew.

    `config` is one of the two; its presses are left out: the target with its whole cache decides.
    """
    if index >= min(len(ours), len(theirs)):
        return None
    greedy = config.sampling.temperature == 0
    if not greedy and config.rule != "coupled":
        return None
    pair = (ours[index], theirs[index])
    tokens = [*prompt, *ours[:index]]
    plain = dataclasses.replace(config, method="autoregressive", compression=None)
    ways = [
        _scores(engine, tokens, len(prompt), block, plain, pair)
        for block in BLOCKS
        if block <= len(tokens)
    ]
    gaps = [way.scores[0] - way.scores[1] for way in ways]
    size = max(abs(logit) for way in ways for logit in way.logits if math.isfinite(logit))
    eps = torch.finfo(engine.session(Role.TARGET, plain).decoder.dtype).eps
    return Parting(
        index=index,
        tokens=pair,
        scores=ways[0].scores,
        gap=min(map(abs, gaps)),
        rounding=max(UNITS * eps * size, max(gaps) - min(gaps)),
    )


@dataclass(frozen=True, kw_only=True)
class _Way:
    """The two candidates, by one way of reading."""

    scores: tuple[float, float]
    logits: tuple[float, float]


def _scores(
    engine: Engine,
    tokens: Sequence[int],
    num_prompt_tokens: int,
    block: int,
    config: DecodeConfig,
    pair: tuple[int, int],
) -> _Way:
    """Both candidates' scores, generated text read `block` tokens at a time."""
    session = engine.session(Role.TARGET, config)
    last = len(tokens) - block
    first = min(last, max(num_prompt_tokens, len(tokens) - REREAD))
    for end in range(first + (last - first) % block, last + 1, block):
        if end:
            session.forward(tokens[:end], 1)
    if config.sampling.temperature == 0:
        row = session.forward(tokens, block)[-1].float().cpu()
        logits = float(row[pair[0]]), float(row[pair[1]])
        return _Way(scores=logits, logits=logits)
    law = engine.law(config, num_prompt_tokens)
    rows, laws = laws_after(session, tokens, block, law)
    logits = float(rows[-1, pair[0]]), float(rows[-1, pair[1]])
    return _Way(scores=_race(laws[-1], config, len(tokens), pair), logits=logits)


def _race(
    law: TokenLaw,
    config: DecodeConfig,
    position: int,
    pair: tuple[int, int],
) -> tuple[float, float]:
    assert config.sampling.seed is not None, "the runs had a seed"
    noise = CoupledRule(config.sampling.seed).noise(position, law.vocab_size)
    scores = torch.from_numpy(law.probs).double().log() - noise.log()
    return float(scores[pair[0]]), float(scores[pair[1]])
