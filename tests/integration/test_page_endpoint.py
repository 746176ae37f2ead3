"""The page's public endpoint, as gradio's own client uses it, on nano beside the HTTP API."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import gradio_client
import httpx
import pytest
from gradio_client.exceptions import AppError

from app import build_app
from fastinfer.config import DecodeConfig
from fastinfer.engine import Engine, load
from tests.browser.fake_engine import FakeEngine
from tests.http_server import running, wait_until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "The old man looked at the sea and"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load("nano", dtype="float32")


@pytest.fixture(scope="module")
def url(engine: Engine) -> Iterator[str]:
    with running(build_app(engine)) as address:
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> gradio_client.Client:
    return gradio_client.Client(url, verbose=False)


def test_the_endpoint_is_the_only_one_and_tells_its_parameters(
    client: gradio_client.Client,
) -> None:
    described = client.view_api(return_format="dict")
    assert list(described["named_endpoints"]) == ["/generate"]
    assert described["unnamed_endpoints"] == {}
    parameters = {
        each["parameter_name"]: each
        for each in described["named_endpoints"]["/generate"]["parameters"]
    }
    assert list(parameters) == [
        "prompt", "method", "max_new_tokens", "temperature", "seed", "options",
    ]  # fmt: skip
    assert not parameters["prompt"]["parameter_has_default"]
    assert parameters["method"]["type"]["enum"] == ["autoregressive", "speculative", "cascade"]
    assert parameters["max_new_tokens"]["parameter_default"] == DecodeConfig().max_new_tokens


def test_the_result_is_the_engines_text_and_its_figures(
    client: gradio_client.Client, url: str, engine: Engine
) -> None:
    asked = {"method": "cascade", "max_new_tokens": 24, "temperature": 0.8, "seed": 7}
    more = {"rule": "coupled", "stop": ["never said"]}
    run = engine.generate(PROMPT, DecodeConfig.from_mapping({**asked, **more}))
    got = client.predict(PROMPT, **asked, options=more, api_name="/generate")
    assert got["text"] == run.text and got["finish_reason"] == run.stats.finished.reason
    assert got["seed"] == 7 and got["stats"]["tokens"] == 24
    body = {"prompt": PROMPT, **asked, **more}
    predicted = httpx.post(f"{url}/predict", json=body, timeout=60).json()
    assert predicted["text"] == got["text"] and predicted["stats"].keys() == got["stats"].keys()


def test_a_prompt_alone_is_enough(client: gradio_client.Client) -> None:
    got = client.predict(PROMPT, api_name="/generate")
    ended = got["finish_reason"] == "eos"  # nothing forbids the model to end its text
    assert ended or got["stats"]["tokens"] == DecodeConfig().max_new_tokens
    again = client.predict(
        PROMPT, seed=got["seed"], options={"rule": "coupled"}, api_name="/generate"
    )
    assert again["seed"] == got["seed"]


def test_the_answer_grows_and_nothing_is_taken_back(client: gradio_client.Client) -> None:
    job = client.submit(  # so long that there is news several times, on the quickest machine too
        PROMPT, method="autoregressive", max_new_tokens=600, temperature=0, api_name="/generate"
    )
    answers = list(job)
    texts = [answer["text"] for answer in answers]
    assert len(set(texts)) > 2
    assert all(later.startswith(text) for text, later in itertools.pairwise(texts))
    assert [answer["finish_reason"] for answer in answers[:-1]] == [None] * (len(answers) - 1)
    assert answers[-1] == job.result() and answers[-1]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"temperature": -1}, "temperature: must be from 0 to 100"),
        ({"method": "magic"}, "method: must be one of"),
        ({"prompt": ""}, "prompt: "),
        ({"prompt": [1, 2]}, "prompt: must be a text"),
        ({"options": {"gama": 3}}, "gama: is not an option"),
        ({"options": {"seed": 3}}, "options: must not hold seed"),
        ({"options": [3]}, "options: must be an object"),
    ],
)
def test_a_value_that_cannot_be_used_is_one_sentence(
    client: gradio_client.Client, asked: dict[str, object], told: str
) -> None:
    with pytest.raises(AppError, match=told):
        client.predict(**{"prompt": PROMPT, **asked}, api_name="/generate")


def test_no_button_of_the_page_can_be_pressed_by_a_client(client: gradio_client.Client) -> None:
    for index, endpoint in client.endpoints.items():
        if endpoint.api_name != "/generate":
            with pytest.raises(ValueError):
                client.predict(fn_index=index)


def test_the_example_in_the_documents_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "http.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if "gradio_client" in block)
    here = block.replace("http://127.0.0.1:7860", url)
    assert here != block
    exec(compile(here, "docs/http.md", "exec"), {})
    text, tpot = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert text and float(tpot) > 0


def test_a_run_that_is_cancelled_ends_within_a_round() -> None:
    engine = FakeEngine(pace_s=0.05)
    with running(build_app(engine)) as address:  # type: ignore[arg-type]
        client = gradio_client.Client(address, verbose=False)
        job = client.submit("p", max_new_tokens=5000, api_name="/generate")
        next(iter(job))
        wait_until(lambda: len(engine.steps) > 3, "the run did not begin")
        job.cancel()
        wait_until(lambda: engine.open_streams == 0, "the run goes on", timeout_s=5)
    assert len(engine.steps) < 200


def test_a_run_that_breaks_is_told(caplog: pytest.LogCaptureFixture) -> None:
    engine = FakeEngine()
    engine.fail_at = 2
    with running(build_app(engine)) as address:  # type: ignore[arg-type]
        client = gradio_client.Client(address, verbose=False)
        with pytest.raises(AppError, match="The run broke off: logits of the target"):
            client.predict("p", api_name="/generate")
    assert engine.open_streams == 0 and "public endpoint" in caplog.text
