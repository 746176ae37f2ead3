"""The measuring tabs without a browser: forms to requests, reports, wiring, the Space."""

from __future__ import annotations

import inspect
import json
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr
import pytest
import torch

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.evaluation.goodness import fit
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.proof import Proof
from fastinfer.http.line import InLine, Line
from fastinfer.models.hub import Fetched
from fastinfer.shelf import CurrentEngine, EngineShelf, LoadState
from fastinfer.ui import benchmark_tab, compare_tab, proof_report, quality_tab, space
from fastinfer.ui.backstage import Backstage
from fastinfer.ui.compare_tab import CompareHandler
from fastinfer.ui.demo import build_demo
from fastinfer.ui.handlers import GenerateHandler
from fastinfer.ui.measuring import MeasuringHandler
from fastinfer.ui.models_tab import ModelsHandler
from fastinfer.ui.proof_tab import ProofHandler
from fastinfer.ui.report import Report, Verdict, plain_label
from fastinfer.ui.theme import page_settings
from fastinfer.ui.variant import read_options, read_variant
from tests.browser.fake_engine import FakeEngine

VARIANT = ("speculative", "none", "draft", 0.5, "")
NO_THIRD = ("none", "none", "draft", 0.5, "")
TASK = (20, 0.8, "7", "coupled")
NASTY = "<img src=x onerror=alert(1)> ${x} {{y}} </script>"


@pytest.fixture
def backstage(engine: FakeEngine) -> Backstage:
    return Backstage(shelf=EngineShelf(engine), line=Line(4))  # type: ignore[arg-type]


def line_of(backstage: Backstage) -> Line:
    assert isinstance(backstage.line, Line)
    return backstage.line


def page(backstage: Backstage) -> gr.Blocks:
    engine = InLine(CurrentEngine(backstage.shelf), line_of(backstage))
    return build_demo(engine, backstage)  # type: ignore[arg-type]


# --- wiring ---------------------------------------------------------------------------------------


def test_every_decoding_event_shares_the_one_queue(backstage: Backstage) -> None:
    demo = page(backstage)
    decoding = [fn for fn in demo.fns.values() if fn.concurrency_id == "engine"]
    names = {fn.fn.__qualname__.split(".")[0] for fn in decoding if fn.fn is not None}
    assert names >= {"CompareHandler", "ProofHandler", "MeasuringHandler"}
    measuring = [fn for fn in decoding if fn.fn and "MeasuringHandler" in fn.fn.__qualname__]
    assert len(measuring) == 2  # Quality and Benchmark
    assert {fn.concurrency_limit for fn in decoding} == {1}
    config = demo.get_config_file()
    public = {dep["id"] for dep in config["dependencies"] if dep["api_visibility"] != "private"}
    stopped = {each for dep in config["dependencies"] for each in dep["cancels"]}
    # The endpoint for gradio's clients has no button; they cancel it themselves.
    assert len(public) == 1 and {fn._id for fn in decoding} - public <= stopped


def test_the_engine_backstage_has_the_turn(backstage: Backstage) -> None:
    with backstage.turn() as held:
        assert held is backstage.shelf.engine
        assert line_of(backstage).num_running == 1
    assert line_of(backstage).num_running == 0


# --- compare --------------------------------------------------------------------------------------


def test_a_form_makes_a_baseline_and_what_is_compared() -> None:
    asked = compare_tab.read_form("Hello", *TASK, *VARIANT, *NO_THIRD)
    assert [column.config.method for column in asked.columns] == ["autoregressive", "speculative"]
    assert {column.config.sampling.seed for column in asked.columns} == {7}
    assert {column.config.rule for column in asked.columns} == {"coupled"}
    third = ("cascade", "snapkv", "target", 0.25, "gamma_policy = constant\ngamma=2")
    asked = compare_tab.read_form("Hello", *TASK, *VARIANT, *third)
    config = asked.columns[2].config
    assert config.gamma.policy == "constant" and config.gamma.initial == 2
    assert config.compression is not None and config.compression.compression_ratio == 0.25
    assert asked.columns[2].name == "C · Cascade + snapkv on the target"


def test_an_empty_seed_is_one_fresh_seed_for_all() -> None:
    made = [compare_tab.read_form("x", 20, 0.8, "", "coupled", *VARIANT, *NO_THIRD) for _ in "12"]
    seeds = [{column.config.sampling.seed for column in asked.columns} for asked in made]
    assert all(len(each) == 1 for each in seeds) and seeds[0] != seeds[1]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ("temperature = 0", "options"),
        ("max_new_tokens = 3", "options"),
        ("stop = x", "options"),
        ("nonsense", "options"),
        ("gama = 3", "gama"),
        ("gamma = many", "gamma"),
    ],
)
def test_what_would_change_the_task_is_refused(more: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compare_tab.read_form("x", *TASK, *VARIANT[:-1], more, *NO_THIRD)
    assert caught.value.field == field


def test_a_comparison_ends_in_a_replay(engine: FakeEngine, backstage: Backstage) -> None:
    handler = CompareHandler(InLine(engine, line_of(backstage)), backstage)  # type: ignore[arg-type]
    values = list(handler.once(NASTY, *TASK, *VARIANT, *NO_THIRD))
    record = json.loads(values[-1])
    assert record["state"] == "done" and record["prompt"] == NASTY
    assert [column["name"] for column in record["columns"]] == ["A · Baseline", "B · Speculative"]
    for column, steps in zip(record["columns"], (None, engine.steps), strict=True):
        assert len(column["tokens"]) == 20
        if steps:
            times = [step.elapsed_ms for step in steps for _ in step.tokens]
            assert [token[2] for token in column["tokens"]] == times
    assert record["verdicts"][1]["tone"] == "good" and "same text" in record["verdicts"][1]["text"]
    assert "<" not in values[-1]
    assert engine.open_streams == 0 and line_of(backstage).num_running == 0


def test_stopping_a_comparison_frees_the_turn(engine: FakeEngine, backstage: Backstage) -> None:
    engine.pace_s = 0.02
    handler = CompareHandler(InLine(engine, line_of(backstage)), backstage)  # type: ignore[arg-type]
    values = handler.once("x", 2000, 0.8, "7", "coupled", *VARIANT, *NO_THIRD)
    for value in values:
        if "Run 1 of 2" in value:
            break
    values.close()
    assert engine.closed.wait(5) and engine.open_streams == 0


def test_a_slip_is_a_toast(backstage: Backstage, engine: FakeEngine) -> None:
    handler = CompareHandler(engine, backstage)
    with pytest.raises(gr.Error, match="Prompt"):
        handler.check("", *TASK, *VARIANT, *NO_THIRD)
    with pytest.raises(gr.Error, match="&lt;b&gt;"):
        handler.check("x", 20, 0.8, "<b>7</b>", "coupled", *VARIANT, *NO_THIRD)


# --- forms ----------------------------------------------------------------------------------------


def test_options_are_read_a_line_each() -> None:
    assert read_options("gamma = 3\n\nignore-eos=true\n rule = coupled ") == {
        "gamma": 3, "ignore_eos": True, "rule": "coupled",
    }  # fmt: skip
    assert read_variant("prompt-lookup", "none", "draft", 0.5, None).options == {
        "method": "speculative", "draft": "prompt-lookup",
    }  # fmt: skip


def test_a_benchmark_form_keeps_the_benchmarks_order() -> None:
    asked = benchmark_tab.read_form(["cascade", "autoregressive"], ["A"], 8.0, 4, 2, 0, "gamma=2")
    assert asked.methods == ("autoregressive", "cascade") and asked.options == {"gamma": 2}
    for bad in ([[], ["A"], 8, 4, 2], [["cascade"], [], 8, 4, 2], [["cascade"], ["A"], 0, 4, 2]):
        with pytest.raises(ConfigError):
            benchmark_tab.read_form(*bad, 0, "")


def test_a_quality_form_is_every_press_at_every_ratio(tmp_path: Any) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("Some words.", encoding="utf-8")
    asked = quality_tab.read_form(str(file), ["knorm", "tova"], [0.25, 0.5], 64, 2, 0)
    names = [variant.name for variant in asked.variants]
    assert names == [UNCOMPRESSED, "knorm@0.25", "knorm@0.5", "tova@0.25", "tova@0.5"]
    assert asked.interval is None and asked.corpus == "mine.txt"
    assert asked.documents[0].text == "Some words."


@pytest.mark.parametrize("content", [b"\xff\xfe\xff", b"x" * 5_000_001])
def test_a_file_that_is_no_text_or_too_large_is_refused(tmp_path: Any, content: bytes) -> None:
    file = tmp_path / "mine.txt"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="corpus"):
        quality_tab.read_text(str(file))


# --- reports --------------------------------------------------------------------------------------


def a_proof(law: torch.Tensor, counts: torch.Tensor) -> Proof:
    return Proof(
        fit=fit(counts, law), counts=counts, law=law, num_tested=100, num_accepted=60,
        compressed=(),
    )  # fmt: skip


def drawn(good: bool, **asked: Any) -> Report:
    law = torch.tensor([0.5, 0.5, 0.0])
    counts = torch.tensor([51, 49, 0]) if good else torch.tensor([95, 5, 0])
    request = proof_report.Asked(
        prompt="x", config=asked.pop("config", DecodeConfig()), draws=100,
        wrong=asked.pop("wrong", False),
    )  # fmt: skip
    proof = a_proof(law, counts)
    tokens = proof_report.likeliest(proof)
    assert 2 not in tokens
    texts = dict.fromkeys(tokens, NASTY)
    return proof_report.report(request, proof_report.Drawn(proof=proof, texts=texts))


def test_a_proof_is_green_or_red_and_says_why() -> None:
    right, wrong = drawn(True), drawn(False, wrong=True)
    assert isinstance(right.verdict, Verdict) and right.verdict.tone == "good"
    assert wrong.verdict is not None and wrong.verdict.tone == "bad"
    assert "wrong on purpose" in wrong.verdict.more
    pressed = DecodeConfig.from_mapping({"press": "knorm"})
    lossy = drawn(False, config=pressed)
    assert lossy.verdict is not None and "knorm drops entries" in lossy.verdict.more
    assert "report" in (drawn(False).verdict or right.verdict).more


def test_a_models_text_reaches_no_parser() -> None:
    made = drawn(True)
    labels = made.charts[0].layout["xaxis"]["ticktext"]
    assert all("<" not in label and "$" not in label for label in labels)
    assert "<" not in made.to_json()
    assert plain_label("<b>&amp;") == "&lt;b&gt;&amp;amp;"


# --- models ---------------------------------------------------------------------------------------


def test_the_models_tab_shows_the_catalogue_and_what_is_loaded(backstage: Backstage) -> None:
    record = json.loads(ModelsHandler(backstage).show())
    names = [row[0] for row in record["table"]["rows"]]
    assert "nano" in names and "pythia" in names
    assert record["figures"][0] == {"name": "Loaded", "value": "fake", "help": ""}


def shelf_that(load_engine: Callable[..., Any]) -> EngineShelf:
    return EngineShelf(FakeEngine(), load_engine=load_engine)  # type: ignore[arg-type]


def test_loading_is_watched_to_its_end_and_failure_leaves_the_engine() -> None:
    def broken(preset: str, **options: Any) -> Any:
        raise ConfigError("preset", "its files are broken")

    shelf = shelf_that(broken)
    before = shelf.engine
    handler = ModelsHandler(Backstage(shelf=shelf, line=Line(1)))
    handler.check("nano")
    last = json.loads(list(handler.watch("nano"))[-1])
    assert last["state"] == "failed" and "its files are broken" in last["verdict"]["more"]
    assert shelf.engine is before

    other = FakeEngine()
    other.info = types.SimpleNamespace(**{**vars(other.info), "preset": "nano"})  # type: ignore[assignment]
    shelf = shelf_that(lambda preset, **options: other)
    handler = ModelsHandler(Backstage(shelf=shelf, line=Line(1)))
    handler.check("nano")
    last = json.loads(list(handler.watch("nano"))[-1])
    assert last["verdict"]["tone"] == "good" and shelf.engine is other
    assert last["table"]["rows"][0][0] == "nano (loaded)"


def test_a_preset_that_does_not_exist_is_a_toast(backstage: Backstage) -> None:
    with pytest.raises(gr.Error, match="preset"):
        ModelsHandler(backstage).check("giant")


def test_progress_of_a_download_is_a_share(backstage: Backstage) -> None:
    state = LoadState(
        loading="pythia", fetched=Fetched(name="a", done_bytes=5_000_000, total_bytes=20_000_000)
    )
    made = ModelsHandler(backstage).report(state)
    assert made.state == "running" and made.progress == 0.25 and "5 of 20 MB" in made.detail


# --- Space ----------------------------------------------------------------------------------------


def words(*values: Any) -> Iterator[str]:
    yield from map(str, values)


def test_without_the_package_a_function_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spaces", None)
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    assert space.gpu(words, lambda *values: 30) is words


def test_on_zero_gpu_the_run_asks_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def gpu(duration: Any) -> Callable[[Any], Any]:
        asked.append(duration)
        return lambda run: run

    fake = types.ModuleType("spaces")
    fake.GPU = gpu  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spaces", fake)
    monkeypatch.setattr(space, "on_zero_gpu", lambda: True)
    assert list(space.gpu(words, lambda tokens: space.seconds_for(tokens))(1, 2)) == ["1", "2"]
    assert asked[0](160) == space.START_SECONDS + 8


def test_the_time_grows_with_the_tokens_and_is_bounded() -> None:
    assert space.seconds_for(100) < space.seconds_for(1000) <= space.LONGEST_SECONDS
    assert space.seconds_for(100, runs=3) > space.seconds_for(100)
    assert space.seconds_for(10**9) == space.LONGEST_SECONDS
    for bad in (None, "many", -5, float("nan"), True):
        assert space.seconds_for(bad) == space.START_SECONDS


def test_every_run_is_a_plain_generator_of_texts() -> None:
    """What ZeroGPU can run: no coroutine, and nothing but text crosses to the page."""
    runs = (
        GenerateHandler.generate, CompareHandler.once, CompareHandler.again, ProofHandler.run,
        MeasuringHandler.run,
    )  # fmt: skip
    for run in runs:
        assert inspect.isgeneratorfunction(run)
        assert run.__annotations__["return"] in ("Values", "Generator[str, None, None]")


def test_a_launch_takes_the_pages_settings() -> None:
    allowed = set(inspect.signature(gr.Blocks.launch).parameters)
    assert set(page_settings()) <= allowed
    assert page_settings()["ssr_mode"] is False
