"""An engine that says what it is told to: two steps, every origin, and a record of its request."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.events import Event, Finished, Origin, Role, Stage, Started, Step, Token
from fastinfer.info import EngineInfo
from fastinfer.options import ModelChoice

TOKENS = (
    (" old", Origin.TARGET),
    (" man", Origin.DRAFT),
    ("\nand", Origin.INTERMEDIATE),
    ("", Origin.RESAMPLED),  # ends inside a character
    ("é the", Origin.BONUS),
)


def token(text: str, origin: Origin, position: int) -> Token:
    return Token(id=position, text=text, origin=origin, position=position, target_prob=0.5)


def step(index: int, tokens: list[tuple[str, Origin]], first: int) -> Step:
    tested = len(tokens) - 1
    return Step(
        index=index,
        tokens=tuple(token(text, origin, first + i) for i, (text, origin) in enumerate(tokens)),
        rejected=(),
        stages=(
            Stage(role=Role.TARGET, num_drafted=tested, num_tested=tested, num_accepted=tested),
        ),
        gamma=tested,
        draft_ms=1.0,
        verify_ms=2.0,
        elapsed_ms=20.0 + 40.0 * index,
        cache_tokens={Role.DRAFT: 8, Role.TARGET: 9},
        cache_bytes={Role.DRAFT: 800_000, Role.TARGET: 1_500_000},
    )


class FakeEngine:
    """Two steps with every origin, and a record of what it was asked."""

    def __init__(
        self,
        tokens: tuple[tuple[str, Origin], ...] = TOKENS,
        failure: BaseException | None = None,
        method: str = "cascade",
        target: str = "large",
        drafts: bool = True,
    ) -> None:
        self.tokens = tokens
        self.failure = failure
        self.method = method
        self.models = {Role.TARGET: target, **({Role.DRAFT: "small"} if drafts else {})}
        self.choice: ModelChoice | None = None
        self.prompt: str | Sequence[int] | None = None
        self.messages: list[Mapping[str, str]] | None = None
        self.config: DecodeConfig | None = None
        self.closed = False

    def load(self, choice: ModelChoice) -> FakeEngine:
        self.choice = choice
        return self

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            preset="fake", models=self.models, dtype="float32", device="cpu",
            context=64, chat=True, defaults={"temperature": 0.25, "top_k": 7},
        )  # fmt: skip

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        self.messages = list(messages)
        return [1, 2, 3]

    def check(self, prompt: str | Sequence[int], config: DecodeConfig) -> None:
        if not prompt:
            raise ConfigError("prompt", "is empty; give at least one character")

    def stream(
        self, prompt: str | Sequence[int], config: DecodeConfig
    ) -> Generator[Event, None, None]:
        self.prompt, self.config = prompt, config
        # Held, so that a stream which nobody closes stays open.
        self.running = self._stream()
        return self.running

    def _stream(self) -> Generator[Event, None, None]:
        try:
            yield from self.events()
        finally:
            self.closed = True

    def events(self) -> Iterator[Event]:
        yield Started(
            method=self.method,
            rule="residual",
            num_prompt_tokens=3,
            max_new_tokens=5,
            seed=11,
            models={Role.DRAFT: "small", Role.TARGET: self.models[Role.TARGET]},
            dtype="float32",
            device="cpu",
        )
        yield step(0, [self.tokens[0]], 3)
        if self.failure is not None:
            raise self.failure
        yield step(1, list(self.tokens[1:]), 4)
        text = "".join(text for text, _ in self.tokens)
        yield Finished(reason="length", text=text, num_tokens=len(self.tokens), elapsed_ms=60.0)
