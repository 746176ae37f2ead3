"""An engine without weights: deterministic events that follow the contract of fastinfer.events.

The page's tests need text with traps in it, known origins and a pace of their own. A model gives
none of these.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Mapping, Sequence
from itertools import chain, cycle, islice

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.events import (
    Compressed,
    Event,
    Finished,
    Origin,
    Role,
    Shadow,
    Stage,
    Started,
    Step,
    Token,
)
from fastinfer.info import EngineInfo

# Everything that a template, an HTML parser or a careless decoder could trip over.
TRAPS = (
    " The", " sea", " ${x}", " {{x}}", " <img src=x onerror=\"window.pwned=1\">", "\n", "\n\n",
    "\t", " 🌊", " 海は", " שלום", " &amp;", " `code`", " </span>", "  two",
    " $HOME", "<script>", " end",
)  # fmt: skip
LIVE_BYTES = {Role.TARGET: 12288, Role.INTERMEDIATE: 4096, Role.DRAFT: 1024}
FAKE_SEED = 4242
PRESS_ROUNDS = 10  # between two compressions

# One round of each method: the origins of the tokens that it commits.
ROUNDS: dict[str, tuple[tuple[Origin, ...], ...]] = {
    "autoregressive": ((Origin.TARGET,),),
    "speculative": (
        (Origin.DRAFT, Origin.DRAFT, Origin.RESAMPLED),
        (Origin.DRAFT, Origin.DRAFT, Origin.DRAFT, Origin.BONUS),
        (Origin.RESAMPLED,),
    ),
    "cascade": (
        (Origin.DRAFT, Origin.INTERMEDIATE, Origin.DRAFT, Origin.RESAMPLED),
        (Origin.DRAFT, Origin.DRAFT, Origin.INTERMEDIATE, Origin.BONUS),
        (Origin.RESAMPLED,),
    ),
}


class FakeEngine:
    """A step per round, `pace_s` apart and `token_ms` by its own clock.

    `open_streams` tells whether anything is left running.
    """

    def __init__(
        self, words: tuple[str, ...] = TRAPS, pace_s: float = 0.0, *, token_ms: float = 10.0
    ) -> None:
        self.info = EngineInfo(
            preset="fake",
            models={role: f"fake-{role}" for role in Role},
            dtype="float32",
            device="cpu",
            context=2048,
            backends=dict.fromkeys(Role, "fastinfer") | {Role.DRAFT: "transformers"},
        )
        self.words = words
        self.token_ms = token_ms
        self.open_streams = 0
        self.closed = threading.Event()
        self.reset(pace_s)

    def reset(self, pace_s: float = 0.0) -> None:
        """Forget what was asked and said."""
        self.pace_s = pace_s
        self.most_streams = 0  # open at the same time
        self.requests: list[DecodeConfig] = []
        self.steps: list[Step] = []  # of the latest stream
        self.fail_at: int | None = None  # the round in which the engine breaks

    def check(self, prompt: str | Sequence[int], config: DecodeConfig) -> list[int]:
        if not prompt:
            raise ConfigError("prompt", "is empty; give at least one character")
        return list(range(len(prompt.split()))) if isinstance(prompt, str) else list(prompt)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> str:
        return " ".join(f"{message['role']}: {message['content']}" for message in messages)

    def stream(
        self, prompt: str | Sequence[int], config: DecodeConfig
    ) -> Generator[Event, None, None]:
        num_prompt_tokens = len(self.check(prompt, config))
        self.requests.append(config)
        self.steps = []
        self.open_streams += 1
        self.most_streams = max(self.most_streams, self.open_streams)
        self.closed.clear()
        try:
            yield from self._events(num_prompt_tokens, config)
        finally:
            self.open_streams -= 1
            self.closed.set()

    def _events(self, start: int, config: DecodeConfig) -> Generator[Event, None, None]:
        roles = list(Role) if config.method != "autoregressive" else [Role.TARGET]
        yield Started(
            method=config.method,
            rule=config.rule,
            num_prompt_tokens=start,
            max_new_tokens=config.max_new_tokens,
            seed=FAKE_SEED if config.sampling.seed is None else config.sampling.seed,
            models={role: name for role, name in self.info.models.items() if role in roles},
            dtype="float32",
            device="cpu",
            lossless=config.lossless,
            lossless_reason=config.lossless_reason,
            options=config.to_mapping(),
        )
        dropped = 0  # entries of the target's cache, which is all that a press here acts on
        pressed = config.compression_of("target") is not None
        words, text, made, elapsed_ms = cycle(self.words), "", 0, 20.0
        for index, origins in enumerate(cycle_after_prefill(config.method)):
            if index == self.fail_at:
                raise FloatingPointError("logits of the target are not finite")
            self._wait()
            origins = origins[: config.max_new_tokens - made]
            tokens = tuple(
                _token(next(words), origin, start + made + i) for i, origin in enumerate(origins)
            )
            if pressed and index % PRESS_ROUNDS == 1:
                yield _compressed(index - 1, start + made - dropped)
                dropped = start + made - (start + made - dropped) // 2
            made += len(tokens)
            text += "".join(token.text for token in tokens)
            elapsed_ms += self.token_ms if index else 0.0
            step = _step(index, tokens, roles, start + made, elapsed_ms)
            if pressed:
                step = dataclasses.replace(
                    step,
                    cache_tokens=step.cache_tokens | {Role.TARGET: start + made - dropped},
                    shadow=Shadow(num_positions=1, kl_nats=0.25, top1_agreement=0.75),
                )
            self.steps.append(step)
            yield step
            if made >= config.max_new_tokens:
                break
        yield Finished(reason="length", text=text, num_tokens=made, elapsed_ms=elapsed_ms)

    def _wait(self) -> None:
        if self.pace_s:
            threading.Event().wait(self.pace_s)


def cycle_after_prefill(method: str) -> Generator[tuple[Origin, ...], None, None]:
    yield (Origin.TARGET,)
    yield from cycle(ROUNDS[method])


def origins_of(method: str, count: int) -> list[Origin]:
    """Origins of the first `count` tokens of a run."""
    return list(islice(chain.from_iterable(cycle_after_prefill(method)), count))


def _token(text: str, origin: Origin, position: int) -> Token:
    drafted = origin in (Origin.DRAFT, Origin.INTERMEDIATE)
    return Token(
        id=position,
        text=text,
        origin=origin,
        position=position,
        target_prob=0.5,
        draft_prob=0.625 if drafted else None,
        accept_prob=0.8 if drafted else None,
    )


def _compressed(after_step: int, entries: int) -> Compressed:
    live = LIVE_BYTES[Role.TARGET]
    return Compressed(
        role=Role.TARGET,
        after_step=after_step,
        entries_before=entries,
        entries_after=entries // 2,
        bytes_before=live * entries,
        bytes_after=live * (entries // 2),
        allocated_before=live * entries,
        allocated_after=live * entries,
        compress_ms=0.5,
    )


def _step(
    index: int, tokens: tuple[Token, ...], roles: list[Role], length: int, elapsed_ms: float
) -> Step:
    accepted = sum(t.origin in (Origin.DRAFT, Origin.INTERMEDIATE) for t in tokens)
    refused = tokens[-1].origin is Origin.RESAMPLED
    drafts = len(roles) > 1 and index > 0
    stages = (
        Stage(role=Role.INTERMEDIATE, num_drafted=4, num_tested=4, num_accepted=3),
        Stage(
            role=Role.TARGET,
            num_drafted=accepted + 2 * refused,
            num_tested=accepted + refused,
            num_accepted=accepted,
        ),
    )
    return Step(
        index=index,
        tokens=tokens,
        rejected=(_token(" wrong", Origin.DRAFT, tokens[-1].position),) if refused else (),
        stages=stages if drafts else (),
        gamma=3 + index % 4 if drafts else 0,
        draft_ms=4.0 if drafts else 0.0,
        verify_ms=6.0,
        elapsed_ms=elapsed_ms,
        cache_tokens=dict.fromkeys(roles, length),
        cache_bytes={role: LIVE_BYTES[role] * length for role in roles},
    )
