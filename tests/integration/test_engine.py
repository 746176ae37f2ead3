"""The engine on tiny random models: events, text, stops, limits, interleaving, clean-up."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from tiny import save_tiny, tiny_engine, tiny_models

from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.engine import Engine, load
from fastinfer.events import Event, Finished, Role, Started, Step
from fastinfer.metrics import RunStats
from fastinfer.models.session import Session

pytestmark = pytest.mark.integration

PROMPT = "It was a dark and stormy night; it was a dark"
METHODS = ("autoregressive", "speculative", "cascade")
DRAFTED = [{"method": "speculative"}, {"method": "cascade"}, {"draft": "prompt-lookup"},
           {"draft": "lookup-first"}, {"method": "cascade", "draft": "lookup-first"},
           {"method": "cascade", "draft": "prompt-lookup"}]  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Engine:
    return tiny_engine()


def config(**options: object) -> DecodeConfig:
    # A policy without a clock: the same seed then gives the same blocks.
    base = {"max_new_tokens": 40, "ignore_eos": True, "gamma_policy": "aimd"}
    return DecodeConfig.from_mapping({**base, **options})


def steps(events: Iterator[Event] | tuple[Event, ...]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


@pytest.mark.parametrize("options", DRAFTED, ids=str)
@pytest.mark.parametrize("prompt", ["a", "ab", PROMPT])
def test_greedy_text_is_the_baselines(engine: Engine, options: dict, prompt: str) -> None:
    baseline = engine.generate(prompt, config(method="autoregressive", temperature=0))
    for gamma in (1, 4, 9):
        run = engine.generate(prompt, config(temperature=0, gamma=gamma, **options))
        assert run.token_ids == baseline.token_ids
        assert run.text == baseline.text


@pytest.mark.parametrize("policy", ["cost_aware", "confidence", "constant", "additive"])
@pytest.mark.parametrize("options", DRAFTED, ids=str)
def test_no_policy_changes_a_text(engine: Engine, options: dict, policy: str) -> None:
    for sampling in ({"temperature": 0}, {"rule": "coupled", "seed": 3}):
        baseline = engine.generate(PROMPT, config(method="autoregressive", **sampling))
        run = engine.generate(PROMPT, config(gamma_policy=policy, **options, **sampling))
        assert run.token_ids == baseline.token_ids


@pytest.mark.parametrize("options", DRAFTED, ids=str)
def test_coupled_text_is_the_baselines_with_the_same_seed(engine: Engine, options: dict) -> None:
    sampling = {"temperature": 0.9, "seed": 7, "rule": "coupled"}
    baseline = engine.generate(PROMPT, config(method="autoregressive", **sampling))
    assert engine.generate(PROMPT, config(**options, **sampling)).token_ids == baseline.token_ids


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_repeats_a_run_and_is_reported(engine: Engine, method: str) -> None:
    first = engine.generate(PROMPT, config(method=method))
    started = first.events[0]
    assert isinstance(started, Started)
    again = engine.generate(PROMPT, config(method=method, seed=started.seed))
    assert again.token_ids == first.token_ids
    assert engine.generate(PROMPT, config(method=method, seed=0)).stats.started.seed == 0


@pytest.mark.parametrize("method", METHODS)
def test_events_add_up(engine: Engine, method: str) -> None:
    run = engine.generate(PROMPT, config(method=method, seed=1))
    started, *middle, finished = run.events
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    tokens = [token for step in steps(run.events) for token in step.tokens]
    assert [step.index for step in steps(tuple(middle))] == list(range(len(middle)))
    assert "".join(token.text for token in tokens) == finished.text == run.text
    assert len(tokens) == finished.num_tokens == run.stats.num_tokens == 40
    first = started.num_prompt_tokens
    assert [token.position for token in tokens] == list(range(first, first + 40))
    assert run.text == engine._models.tokenizer.decode(run.token_ids)
    elapsed = [step.elapsed_ms for step in steps(run.events)]
    assert elapsed == sorted(elapsed)
    for step in steps(run.events):
        for stage in step.stages:
            assert 0 <= stage.num_accepted <= stage.num_tested <= stage.num_drafted
        target = step.stages[-1]
        assert len(step.tokens) <= target.num_accepted + 1
        assert len(step.rejected) == int(target.num_tested > target.num_accepted)
    assert sum(run.stats.origins.values()) == 40


@pytest.mark.parametrize("method", METHODS)
def test_no_cache_holds_more_than_the_committed_tokens(engine: Engine, method: str) -> None:
    # mlxcel#994: cached tokens == committed tokens - 1 for the target after every round.
    run = engine.generate(PROMPT, config(method=method, seed=3))
    total = run.stats.started.num_prompt_tokens
    for step in steps(run.events):
        total += len(step.tokens)
        assert step.cache_tokens[Role.TARGET] == total - 1
        assert all(count <= total - 1 for count in step.cache_tokens.values())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("method", METHODS)
def test_max_new_tokens_is_exact(engine: Engine, method: str, count: int) -> None:
    run = engine.generate(PROMPT, config(method=method, max_new_tokens=count, gamma=4))
    assert len(run.token_ids) == count
    assert run.stats.finished.reason == "length"


@pytest.mark.parametrize("method", METHODS)
def test_an_end_token_ends_the_text(method: str) -> None:
    models = tiny_models()
    baseline = Engine(models).generate(PROMPT, config(method="autoregressive", temperature=0))
    for at in (1, 3, 6):
        end = baseline.token_ids[at]
        first = baseline.token_ids.index(end)
        ending = Engine(
            type(models)(
                preset="tiny", tokenizer=models.tokenizer, decoders=models.decoders,
                vocab_size=models.vocab_size, end_ids=frozenset([end]),
            )
        )  # fmt: skip
        run = ending.generate(
            PROMPT, config(method=method, temperature=0, gamma=8, ignore_eos=False)
        )
        assert run.token_ids == baseline.token_ids[: first + 1]
        assert run.stats.finished.reason == "eos"
        held = ending.generate(
            PROMPT,
            config(
                method=method, temperature=0, ignore_eos=False, min_new_tokens=12,
                max_new_tokens=12,
            ),
        )  # fmt: skip
        assert end not in held.token_ids


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [1, 2, 3])
def test_a_stop_text_is_honoured_at_every_place(engine: Engine, method: str, width: int) -> None:
    whole = engine.generate(PROMPT, config(method="autoregressive", temperature=0)).text
    for start in range(len(whole) - width):
        stop = whole[start : start + width]
        run = engine.generate(PROMPT, config(method=method, temperature=0, stop=stop, gamma=8))
        assert run.text == whole[: whole.index(stop)]
        assert run.stats.finished.reason == "stop"
        joined = "".join(t.text for s in steps(run.events) for t in s.tokens)
        assert joined == run.text


def test_a_stop_text_that_only_begins_is_shown_in_the_end(engine: Engine) -> None:
    whole = engine.generate(PROMPT, config(temperature=0)).text
    stop = whole[-1] + "#never#"
    assert engine.generate(PROMPT, config(temperature=0, stop=[stop])).text == whole


@pytest.mark.parametrize("method", METHODS)
def test_the_context_ends_a_text(method: str) -> None:
    small = tiny_engine(context=48)
    run = small.generate(PROMPT[:40], config(method=method, max_new_tokens=100))
    assert len(run.token_ids) == 8
    assert run.stats.finished.reason == "context"


def test_bad_requests_are_refused_at_once(engine: Engine) -> None:
    with pytest.raises(ConfigError, match="prompt: is empty"):
        engine.stream("", config())
    with pytest.raises(ConfigError, match="prompt: has 300 tokens; the model reads at most 256"):
        engine.stream("a" * 300, config())


def test_a_method_without_its_model_is_refused() -> None:
    models = tiny_models()
    del models.decoders[Role.INTERMEDIATE]
    with pytest.raises(
        ConfigError, match="method: cascade needs a model for the role intermediate"
    ):
        Engine(models).stream("a", config(method="cascade"))


def test_two_prompts_through_one_engine_the_second_shorter(engine: Engine) -> None:
    alone = [engine.generate(p, config(seed=5)).token_ids for p in (PROMPT, "x")]
    assert [engine.generate(p, config(seed=5)).token_ids for p in (PROMPT, "x")] == alone


def test_interleaved_streams_do_not_disturb_each_other(engine: Engine) -> None:
    alone = [engine.generate(PROMPT, config(seed=s)).token_ids for s in (1, 2)]
    streams = [engine.stream(PROMPT, config(seed=s)) for s in (1, 2)]
    ids: list[list[int]] = [[], []]
    running = {0, 1}
    while running:
        for i in sorted(running):
            event = next(streams[i], None)
            if event is None:
                running.remove(i)
            elif isinstance(event, Step):
                ids[i].extend(token.id for token in event.tokens)
    assert [tuple(some) for some in ids] == alone


def test_a_stream_closed_early_frees_its_caches_and_the_turn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Session]] = []
    original = Session.__init__

    def noting(self: Session, *args: object) -> None:
        original(self, *args)  # type: ignore[arg-type]
        made.append(weakref.ref(self))

    monkeypatch.setattr(Session, "__init__", noting)
    stream = engine.stream(PROMPT, config(method="cascade"))
    for _ in range(4):
        next(stream)
    assert len(made) == 3
    stream.close()
    gc.collect()
    assert [ref() for ref in made] == [None, None, None]
    assert not engine._turn.locked()
    assert engine.generate(PROMPT, config()).stats.num_tokens == 40


def test_a_slow_reader_costs_no_engine_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.001  # every look at the clock is a millisecond later
        return now[0]

    monkeypatch.setattr("fastinfer.engine.time.perf_counter", clock)
    stats = {}
    for pause in (0.0, 1000.0):
        stats[pause] = RunStats()
        for event in engine.stream(PROMPT, config(seed=1)):
            stats[pause].add(event)
            now[0] += pause
    assert stats[0.0].last_ms == pytest.approx(stats[1000.0].last_ms)


def test_not_finite_logits_are_an_error_with_the_models_name() -> None:
    models = tiny_models()
    target = models.decoders[Role.TARGET]
    with torch.no_grad():
        target.model.embed_out.weight.fill_(float("nan")) if hasattr(
            target.model, "embed_out"
        ) else target.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="the target model's logits for position 1"):
        list(Engine(models).stream("a", config(method="autoregressive")))


# Loading ------------------------------------------------------------------------------------------


def test_models_load_from_folders(tmp_path: object) -> None:
    target = save_tiny(tmp_path / "target", 1)  # type: ignore[operator]
    draft = save_tiny(tmp_path / "draft", 2)  # type: ignore[operator]
    loaded = load(target=target, draft=draft, dtype="float32")
    assert loaded.info.preset == "custom"
    assert set(loaded.info.models) == {Role.TARGET, Role.DRAFT}
    assert loaded.info.dtype == "float32"
    assert loaded.generate("hello", config(max_new_tokens=3)).stats.num_tokens == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "giant"}, "preset: must be one of nano"),
        ({"dtype": "float16"}, "dtype: must be one of auto, float32, bfloat16"),
        ({"device": "warp"}, "device: must be auto, cpu"),
        ({"target": "./nowhere"}, "target: there is no folder ./nowhere"),
        ({"target": "nobody/nothing"}, "target: nobody/nothing is not on this machine"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_sentence(options: dict, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(**options)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_refused(tmp_path: object) -> None:
    with pytest.raises(ConfigError, match="does not hold a causal language model"):
        load(target=str(tmp_path))


def test_another_tokenizer_is_refused_with_the_first_id_that_differs(tmp_path: object) -> None:
    target = save_tiny(tmp_path / "target", 1)  # type: ignore[operator]
    other = save_tiny(tmp_path / "other", 2, extra=("wave",))  # type: ignore[operator]
    with pytest.raises(
        ConfigError, match="draft: its tokenizer is not the target's: id 257 is 'wave'"
    ):
        load(target=target, draft=other)


@pytest.mark.parametrize("method", METHODS)
def test_without_a_cache_the_text_is_the_same(engine: Engine, method: str) -> None:
    cached = engine.generate(PROMPT, config(method=method, temperature=0))
    again = engine.generate(PROMPT, config(method=method, temperature=0, use_cache=False))
    assert again.token_ids == cached.token_ids


def test_a_prompt_may_be_token_ids(engine: Engine) -> None:
    by_text = engine.generate(PROMPT, config(temperature=0))
    assert engine.generate(engine.encode(PROMPT), config(temperature=0)).text == by_text.text
