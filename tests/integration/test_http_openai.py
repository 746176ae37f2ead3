"""OpenAI's own client against a real server on nano."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.events import Step
from fastinfer.http.app import build_api
from fastinfer.http.line import Line
from fastinfer.serve_options import ServeConfig
from tests.http_server import running

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "The old man looked at the sea and"
KEY = "test-key"
# The text depends on target, prompt, options and seed alone.
REPEATABLE = {"rule": "coupled", "gamma_policy": "aimd"}  # origins too


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32")


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[openai.OpenAI]:
    config = ServeConfig(api_key=KEY)
    with (
        running(build_api(lambda: engine, config, Line(config.max_waiting))) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as made,
    ):
        yield made


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["nano"]


def test_a_completion_is_the_engines_text(client: openai.OpenAI, engine: Engine) -> None:
    got = client.completions.create(
        model="nano", prompt=PROMPT, max_tokens=24, temperature=0.8, seed=7, extra_body=REPEATABLE
    )
    config = DecodeConfig.from_mapping(
        {"max_new_tokens": 24, "temperature": 0.8, "seed": 7, **REPEATABLE}
    )
    run = engine.generate(PROMPT, config)
    assert got.choices[0].text == run.text
    assert got.choices[0].finish_reason == "length" and got.object == "text_completion"
    assert got.usage is not None
    assert got.usage.completion_tokens == 24
    assert got.usage.prompt_tokens == len(engine.encode(PROMPT))
    assert got.usage.total_tokens == got.usage.prompt_tokens + 24
    ours = got.model_extra["fastinfer"]  # type: ignore[index]
    made = [t for e in run.events if isinstance(e, Step) for t in e.tokens]
    assert [t["id"] for t in ours["tokens"]] == [t.id for t in made]
    assert [t["origin"] for t in ours["tokens"]] == [t.origin.value for t in made]
    assert ours["timings"]["tokens"] == 24 and ours["seed"] == 7
    assert ours["options"]["rule"] == "coupled"


def test_a_stream_is_the_same_text_and_ends_with_its_usage(client: openai.OpenAI) -> None:
    asked = {
        "model": "nano", "prompt": PROMPT, "max_tokens": 24, "temperature": 0.8, "seed": 7,
        "extra_body": REPEATABLE,
    }  # fmt: skip
    whole = client.completions.create(**asked)
    chunks = list(
        client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    *told, last = chunks
    assert "".join(chunk.choices[0].text for chunk in told) == whole.choices[0].text
    assert len(told) > 3
    assert told[-1].choices[0].finish_reason == "length"
    assert last.choices == [] and last.usage == whole.usage


def test_a_seed_repeats_a_text_and_another_changes_it(client: openai.OpenAI) -> None:
    texts = [
        client.completions.create(
            model="nano", prompt=PROMPT, max_tokens=24, seed=seed, extra_body=REPEATABLE
        )
        .choices[0]
        .text
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_prompt_of_ids_is_the_prompt(client: openai.OpenAI, engine: Engine) -> None:
    texts = [
        client.completions.create(model="nano", prompt=prompt, max_tokens=12, temperature=0)
        .choices[0]
        .text
        for prompt in (PROMPT, engine.encode(PROMPT))
    ]
    assert texts[0] == texts[1]


def test_a_stop_text_ends_the_text_before_it(client: openai.OpenAI) -> None:
    asked = {"model": "nano", "prompt": PROMPT, "max_tokens": 40, "temperature": 0}
    text = client.completions.create(**asked).choices[0].text
    stop = text[len(text) // 2 :][:4]
    whole = client.completions.create(**asked, stop=[stop]).choices[0]
    assert whole.text == text[: text.index(stop)] and whole.finish_reason == "stop"
    chunks = list(client.completions.create(**asked, stop=stop, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_logprobs_are_the_targets_own(client: openai.OpenAI) -> None:
    """At temperature 0 and in float32, each token is the likeliest of the target's law."""
    got = client.completions.create(
        model="nano", prompt=PROMPT, max_tokens=16, temperature=0, logprobs=3
    )
    logprobs = got.choices[0].logprobs
    assert logprobs is not None and logprobs.tokens and logprobs.token_logprobs
    assert "".join(logprobs.tokens) == got.choices[0].text
    assert logprobs.text_offset is not None and logprobs.top_logprobs is not None
    for token, own, top, at in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset,
        strict=True,
    ):  # fmt: skip
        assert -30 < own < 0  # the law before temperature, which would make it 0
        assert got.choices[0].text[at:].startswith(token)
        assert own == max(top.values()) and sum(map(math.exp, top.values())) < 1 + 1e-6
    plain = client.completions.create(
        model="nano", prompt=PROMPT, max_tokens=16, temperature=0, logprobs=0,
        extra_body={"method": "autoregressive"},
    )  # fmt: skip
    assert plain.choices[0].logprobs is not None
    assert plain.choices[0].logprobs.token_logprobs == pytest.approx(
        logprobs.token_logprobs, abs=1e-3
    )
    assert plain.choices[0].logprobs.top_logprobs is None


def test_penalties_and_top_p_reach_the_engine(client: openai.OpenAI) -> None:
    got = client.completions.create(
        model="nano", prompt=PROMPT, max_tokens=4, top_p=0.5, presence_penalty=0.5,
        frequency_penalty=-0.25, temperature=1.5,
    )  # fmt: skip
    options = got.model_extra["fastinfer"]["options"]  # type: ignore[index]
    assert (options["top_p"], options["presence_penalty"]) == (0.5, 0.5)
    assert (options["frequency_penalty"], options["temperature"]) == (-0.25, 1.5)


def test_a_base_model_refuses_a_chat_and_says_what_to_do(client: openai.OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(
                model="nano", messages=[{"role": "user", "content": "hi"}], stream=stream
            )
        assert "chat template" in caught.value.message
        assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("asked", "kind", "param"),
    [
        ({"temperature": -1}, openai.UnprocessableEntityError, "temperature"),
        ({"n": 2}, openai.UnprocessableEntityError, "n"),
        ({"max_tokens": 0}, openai.UnprocessableEntityError, "max_tokens"),
        ({"max_tokens": 10**6}, openai.UnprocessableEntityError, "max_tokens"),
        ({"prompt": [10**7]}, openai.UnprocessableEntityError, "prompt"),
        ({"prompt": "word " * 20_000}, openai.UnprocessableEntityError, "prompt"),
        ({"model": "gpt-5"}, openai.NotFoundError, "model"),
    ],
)
def test_errors_are_the_clients_own(
    client: openai.OpenAI, asked: dict[str, object], kind: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(kind) as caught:
        client.completions.create(**{"model": "nano", "prompt": "x", **asked})  # type: ignore[call-overload]
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_a_wrong_key_is_an_authentication_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def test_the_example_in_the_documents_runs(
    client: openai.OpenAI, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "openai" in block)
    here = block.replace("http://127.0.0.1:5000/v1", str(client.base_url)).replace(
        '"none"', f'"{KEY}"'
    )
    assert here != block
    exec(compile(here, "docs/http.md", "exec"), {})
    text, tpot = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert text and float(tpot) > 0
