"""`generate --chat` and `--model-defaults`: what reaches the engine."""

from __future__ import annotations

import pytest
from fake_engine import FakeEngine

from fastinfer import cli


def generate(*options: str) -> tuple[int, FakeEngine]:
    engine = FakeEngine()
    return cli.main(["generate", *options], load=engine.load), engine


def test_a_chat_goes_through_the_template() -> None:
    code, engine = generate("--prompt", "hello", "--chat", "--system", "be brief")
    assert code == 0
    assert engine.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
    ]
    assert engine.prompt == [1, 2, 3]
    _, engine = generate("--prompt", "hello", "--chat")
    assert engine.messages == [{"role": "user", "content": "hello"}]


def test_without_chat_the_prompt_is_a_text() -> None:
    _, engine = generate("--prompt", "hello")
    assert engine.messages is None
    assert engine.prompt == "hello"


def test_system_alone_is_refused_before_a_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, engine = generate("--prompt", "hello", "--system", "be brief")
    assert code == 2
    assert capsys.readouterr().err == "error: system: is a message of a chat: give --chat too\n"
    assert engine.choice is None


def test_the_models_own_sampling_is_used_where_one_asks() -> None:
    _, engine = generate("--prompt", "x")
    assert engine.config is not None
    assert (engine.config.sampling.temperature, engine.config.sampling.top_k) == (1.0, 0)
    _, engine = generate("--prompt", "x", "--model-defaults", "--temperature", "0")
    assert engine.config is not None
    assert (engine.config.sampling.temperature, engine.config.sampling.top_k) == (0, 7)
