"""Bodies to requests: OpenAI's names, ours beside them, and refusals that name the field."""

from __future__ import annotations

from typing import Any

import pytest

from fastinfer.config import FLAT_FIELDS, ConfigError, DecodeConfig
from fastinfer.http.requests import chat_ask, completion_ask, plain_ask, read_messages
from fastinfer.http.schemas import OPTIONS


def test_plain_body_takes_every_option() -> None:
    options = DecodeConfig(max_new_tokens=7, method="cascade", stop=("x",), logprobs=3).to_mapping()
    ask = plain_ask({"prompt": "p", **options}, 100)
    assert ask.prompt == "p"
    assert ask.config.to_mapping() == options


def test_each_route_has_its_own_default_budget() -> None:
    default = DecodeConfig().max_new_tokens
    assert plain_ask({"prompt": "p"}, 999).config.max_new_tokens == default
    assert completion_ask({"prompt": "p"}, 999).config.max_new_tokens == 16
    assert chat_ask("p", {}, 999).config.max_new_tokens == 999
    assert plain_ask({"prompt": "p"}, 5).config.max_new_tokens == 5


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_new_tokens"])
def test_a_budget_has_three_names_and_is_refused_by_the_one_given(name: str) -> None:
    assert completion_ask({"prompt": "p", name: 9}, 10).config.max_new_tokens == 9
    for value in (11, 0, "9", 2.5):
        with pytest.raises(ConfigError) as caught:
            completion_ask({"prompt": "p", name: value}, 10)
        assert caught.value.field == name


def test_two_budgets_must_agree() -> None:
    both = {"prompt": "p", "max_tokens": 4, "max_completion_tokens": 4}
    assert completion_ask(both, 10).config.max_new_tokens == 4
    with pytest.raises(ConfigError):
        completion_ask({**both, "max_tokens": 5}, 10)


def test_a_completion_of_openais_clients() -> None:
    ask = completion_ask(
        {
            "model": "nano", "prompt": ["p"], "max_tokens": 3, "temperature": 0.5, "top_p": 0.9,
            "presence_penalty": 0.1, "frequency_penalty": -0.2, "seed": 4, "stop": ["a", "b"],
            "logprobs": 2, "n": 1, "best_of": 1, "echo": False, "suffix": None, "user": "me",
            "logit_bias": {}, "stream": True, "stream_options": {"include_usage": True},
            "gamma": 3, "method": "speculative",
        },
        10,
    )  # fmt: skip
    sampling = ask.config.sampling
    assert ask.prompt == "p" and ask.stream and ask.include_usage and ask.logprobs
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.9, 4)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, -0.2)
    assert ask.config.stop == ("a", "b") and ask.config.gamma.initial == 3
    assert ask.config.logprobs == 2


@pytest.mark.parametrize(
    ("prompt", "taken"), [("p", "p"), (["p"], "p"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2])]
)
def test_a_prompt_may_be_a_text_or_ids(prompt: Any, taken: Any) -> None:
    assert completion_ask({"prompt": prompt}, 10).prompt == taken


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("prompt", {}),
        ("prompt", {"prompt": None}),
        ("prompt", {"prompt": 7}),
        ("prompt", {"prompt": ["a", "b"]}),
        ("prompt", {"prompt": [[1], [2]]}),
        ("prompt", {"prompt": [1, "a"]}),
        ("prompt", {"prompt": [True]}),
        ("prompt", {"prompt": [1.5]}),
        ("prompt", {"prompt": [["a"]]}),
        ("n", {"prompt": "p", "n": 2}),
        ("n", {"prompt": "p", "n": True}),
        ("best_of", {"prompt": "p", "best_of": 3}),
        ("echo", {"prompt": "p", "echo": True}),
        ("suffix", {"prompt": "p", "suffix": "s"}),
        ("logit_bias", {"prompt": "p", "logit_bias": {"5": 1}}),
        ("logprobs", {"prompt": "p", "logprobs": 6}),
        ("logprobs", {"prompt": "p", "logprobs": True}),
        ("stream", {"prompt": "p", "stream": "yes"}),
        ("stream_options", {"prompt": "p", "stream_options": {"include_usage": True}}),
        ("stream_options", {"prompt": "p", "stream": True, "stream_options": 3}),
        ("temperature", {"prompt": "p", "temperature": "hot"}),
        ("temperature", {"prompt": "p", "temperature": 10**400}),
        ("seed", {"prompt": "p", "seed": -1}),
        ("stop", {"prompt": "p", "stop": [""]}),
        ("wings", {"prompt": "p", "wings": 2}),
    ],
)
def test_a_bad_completion_is_refused_by_field(field: str, body: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        completion_ask(body, 10)
    assert caught.value.field == field


def test_logprobs_of_a_chat_are_a_flag_and_a_count() -> None:
    assert chat_ask("p", {"logprobs": False}, 10).config.logprobs is None
    asked = chat_ask("p", {"logprobs": True}, 10)
    assert asked.logprobs and asked.config.logprobs == 0
    assert chat_ask("p", {"logprobs": True, "top_logprobs": 20}, 10).config.logprobs == 20
    for field, body in (
        ("logprobs", {"logprobs": 2}),
        ("top_logprobs", {"top_logprobs": 2}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        ("tools", {"tools": [{}]}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("reasoning_effort", {"reasoning_effort": "high"}),
    ):
        with pytest.raises(ConfigError) as caught:
            chat_ask("p", body, 10)
        assert caught.value.field == field


def test_messages_become_roles_and_texts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = {
        "messages": [
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": parts, "name": "me"},
            {"role": "assistant", "content": "c"},
        ]
    }
    assert read_messages(body) == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "c"},
    ]


@pytest.mark.parametrize(
    ("field", "messages"),
    [
        ("messages", None),
        ("messages", []),
        ("messages", "hello"),
        ("messages[0]", ["hello"]),
        ("messages[0].role", [{"content": "x"}]),
        ("messages[0].role", [{"role": "tool", "content": "x"}]),
        ("messages[0].role", [{"role": ["user"], "content": "x"}]),
        ("messages[0].content", [{"role": "user"}]),
        ("messages[0].content", [{"role": "user", "content": 3}]),
        ("messages[0].content[0]", [{"role": "user", "content": [{"type": "image_url"}]}]),
        ("messages[0].content[0].text", [{"role": "user", "content": [{"type": "text"}]}]),
        (
            "messages[0].tool_calls",
            [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}],
        ),
    ],
)
def test_a_bad_message_is_refused_by_its_place(field: str, messages: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        read_messages({"messages": messages})
    assert caught.value.field == field


def test_the_schema_tells_of_every_option() -> None:
    assert set(OPTIONS) == set(FLAT_FIELDS)
