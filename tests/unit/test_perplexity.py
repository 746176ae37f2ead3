"""Perplexity on models whose every figure is known by hand, windows, and what is refused."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import byte_tokenizer
from torch import Tensor

from fastinfer import cli
from fastinfer.config import ConfigError, DecodeConfig
from fastinfer.decoding.protocols import Compression
from fastinfer.evaluation import pareto
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.evaluation.perplexity import (
    WindowLoss,
    difference,
    mean_and_error,
    measure,
    summarise,
    token_nats,
    window_loss,
)
from fastinfer.evaluation.ppl_table import table
from fastinfer.evaluation.press_grid import Variant, against_random, report, run_grid
from fastinfer.evaluation.windows import Coder, Document, Window, coder_of, cut
from fastinfer.events import Role
from fastinfer.options import build_parser
from fastinfer.ppl_options import PplChoice, ppl_choice

NEVER = 2**62
LETTERS = Coder(
    encode=lambda text: [ord(c) - ord("a") for c in text],
    decode=lambda ids: "".join(chr(i + ord("a")) for i in ids),
)


class TwoTokens:
    """The next token is the last one again with probability 3/4. A byte per token covered.

    It writes down each pass, and fails where the loop would not keep its promises: a pass never
    reads what it predicts, and `maintain` sees one token more than the cache covers.
    """

    role = Role.TARGET
    vocab_size = 2

    def __init__(self, context: int = 10_000, interval: int = NEVER) -> None:
        self.context = context
        self.interval = interval
        self.num_tokens = 0
        self.passes: list[tuple[int, int]] = []
        self.maintained: list[int] = []

    def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
        assert len(tokens) <= self.context, "read past the context"
        assert len(tokens) - self.num_tokens >= num_logits, "logits of cached tokens"
        self.passes.append((self.num_tokens, len(tokens)))
        self.num_tokens = len(tokens)
        stay = torch.tensor([[math.log(3.0), 0.0], [0.0, math.log(3.0)]])
        return stay[torch.tensor(tokens[len(tokens) - num_logits :])]

    def rollback(self, num_tokens: int) -> None:
        raise AssertionError("nothing is taken back")

    def cache_tokens(self) -> int:
        return self.num_tokens

    def cache_bytes(self) -> int:
        return self.num_tokens

    def cache_allocated(self) -> int:
        return self.num_tokens

    def room_before_trigger(self, num_tokens: int) -> int:
        due = self.maintained[-1] + self.interval
        assert num_tokens < due, "a block went past a trigger"
        return due - num_tokens

    def maintain(self, tokens: Sequence[int]) -> Compression | None:
        assert self.num_tokens == len(tokens) - 1
        if not self.maintained or len(tokens) - self.maintained[-1] >= self.interval:
            self.maintained.append(len(tokens))
        return None


def window(ids: Sequence[int], first: int) -> Window:
    return Window(document="d", ids=tuple(ids), first=first, num_bytes=len(ids) - first)


# --- by hand --------------------------------------------------------------------------------------


def test_two_tokens_by_hand() -> None:
    """After 0: 0, 0, 1, 1 have probabilities 3/4, 3/4, 1/4, 3/4."""
    loss = window_loss(TwoTokens(), window([0, 0, 0, 1, 1], first=1), None)
    expected = -3 * math.log(0.75) - math.log(0.25)
    assert loss.nats == pytest.approx(expected, rel=1e-6)
    assert loss.num_tokens == 4
    result = summarise([loss])
    assert result["perplexity"] == pytest.approx(math.exp(expected / 4), rel=1e-6)
    assert result["bits_per_byte"] == pytest.approx(expected / 4 / math.log(2), rel=1e-6)
    assert result["standard_error"] is None
    assert result["perplexity_95"] is None


def test_the_loss_of_each_token_is_what_a_window_adds_up() -> None:
    ids = [0, 0, 1, 1, 1, 0]
    each = token_nats(TwoTokens(interval=2), ids, 2, 2)
    stays = [ids[i] == ids[i - 1] for i in range(2, len(ids))]
    assert each == pytest.approx([math.log(4 / 3) if stay else math.log(4) for stay in stays])
    assert math.fsum(each) == pytest.approx(window_loss(TwoTokens(), window(ids, 2), None).nats)


def test_live_bytes_are_the_mean_over_the_counted_tokens() -> None:
    """The first counted token is predicted from 3 entries; the others while 3 become 7."""
    loss = window_loss(TwoTokens(), window([0] * 8, first=3), None)
    assert loss.live_bytes == pytest.approx((3 + 4 * (3 + 7) / 2) / 5)


@settings(deadline=None, max_examples=60)
@given(
    ids=st.lists(st.integers(0, 1), min_size=2, max_size=60),
    first=st.integers(1, 59),
    interval=st.none() | st.integers(1, 20),
)
def test_blocks_end_where_a_press_acts_and_change_no_figure(
    ids: list[int], first: int, interval: int | None
) -> None:
    first = min(first, len(ids) - 1)
    model = TwoTokens(interval=interval or NEVER)
    loss = window_loss(model, window(ids, first), interval)
    pairs = itertools.pairwise(ids[first - 1 :])
    expected = sum(-math.log(0.75 if a == b else 0.25) for a, b in pairs)
    assert loss.nats == pytest.approx(expected, rel=1e-5)
    assert model.passes[0] == (0, first)
    ends = [end for _, end in model.passes]
    assert ends[-1] == max(first, len(ids) - 1), "the last token is only predicted"
    if interval is not None:
        assert all(end - start <= interval for start, end in model.passes[1:])
        assert model.maintained == list(range(first + 1, len(ids) + 1, interval))


def test_logits_that_are_not_finite_are_an_error() -> None:
    class Broken(TwoTokens):
        def forward(self, tokens: Sequence[int], num_logits: int) -> Tensor:
            return super().forward(tokens, num_logits) * float("nan")

    with pytest.raises(FloatingPointError, match="target model's logits are not finite"):
        window_loss(Broken(), window([0, 1, 0], 1), None)


@pytest.mark.parametrize("first", [3, 9])
def test_a_window_longer_than_the_context_is_refused(first: int) -> None:
    with pytest.raises(ConfigError, match="context: is too long: a window of 10 tokens"):
        window_loss(TwoTokens(context=8), window([0] * 10, first), None)


# --- uncertainty ----------------------------------------------------------------------------------


def test_the_error_is_that_of_a_mean_where_windows_are_alike() -> None:
    mean, error = mean_and_error([10.0, 20.0, 30.0], [10, 10, 10])
    assert mean == pytest.approx(2.0)
    assert error == pytest.approx(1.0 / math.sqrt(3))  # sample deviation 1 over root 3


def test_longer_windows_weigh_more() -> None:
    mean, error = mean_and_error([10.0, 60.0], [10, 30])
    assert mean == pytest.approx(70 / 40)
    assert error == pytest.approx(math.sqrt(2 * (7.5**2 + 7.5**2)) / 40)


def losses(*nats: float, live: float = 8.0) -> list[WindowLoss]:
    return [WindowLoss(nats=n, num_tokens=10, num_bytes=40, live_bytes=live) for n in nats]


def test_paired_runs_differ_by_less_than_either_varies() -> None:
    hard_and_easy = losses(50.0, 10.0, 30.0)
    worse = losses(51.0, 11.0, 31.0)
    assert summarise(worse)["standard_error"] > 1.0
    assert difference(worse, hard_and_easy) == {
        "nats_per_token": pytest.approx(0.1),
        "standard_error": pytest.approx(0.0, abs=1e-12),
    }


def test_the_interval_is_about_perplexity() -> None:
    result = summarise(losses(20.0, 30.0, 40.0))
    low, high = result["perplexity_95"]
    error = result["standard_error"]
    assert low == pytest.approx(math.exp(3.0 - 1.96 * error))
    assert high == pytest.approx(math.exp(3.0 + 1.96 * error))
    assert low < result["perplexity"] < high


def test_a_broken_model_does_not_break_the_report() -> None:
    assert math.isfinite(summarise(losses(1e6))["perplexity"])


# --- windows --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    context=st.integers(2, 20),
    data=st.data(),
)
def test_every_token_behind_the_first_part_counts_once(
    lengths: list[int], context: int, data: st.DataObject
) -> None:
    stride = data.draw(st.integers(1, context - 1))
    documents = [
        Document(name=str(d), text="".join(chr(97 + (7 * d + i) % 26) for i in range(length)))
        for d, length in enumerate(lengths)
    ]
    lead = context - stride
    if all(length <= lead for length in lengths):
        with pytest.raises(ConfigError, match=f"no text of more than {lead} tokens"):
            cut(documents, LETTERS, context=context, stride=stride)
        return
    windows, notes = cut(documents, LETTERS, context=context, stride=stride)
    for document in documents:
        mine = [w for w in windows if w.document == document.name]
        counted = [i for w in mine for i in w.ids[w.first :]]
        assert LETTERS.decode(counted) == document.text[lead:]
        assert sum(w.num_bytes for w in mine) == len(document.text[lead:])
        for w in mine:
            assert w.first == lead
            assert len(w.ids) <= context
            assert LETTERS.decode(list(w.ids)) in document.text, "a window is a piece of the text"
    assert bool(notes) == any(length <= lead for length in lengths)


def test_what_the_tokenizer_puts_in_front_is_in_every_window_and_never_counts() -> None:
    coder = Coder(encode=LETTERS.encode, decode=LETTERS.decode, prefix=(99,))
    windows, _ = cut([Document(name="d", text="abcdefgh")], coder, context=4, stride=2)
    assert [w.ids for w in windows] == [
        (99, 0, 1, 2), (99, 2, 3, 4), (99, 4, 5, 6), (99, 6, 7),
    ]  # fmt: skip
    assert [w.first for w in windows] == [2, 2, 2, 2]
    with pytest.raises(ConfigError, match=r"stride: must be from 1 to 3, .* not 4"):
        cut([Document(name="d", text="abcdefgh")], coder, context=4, stride=4)


def test_few_windows_are_spread_over_the_whole_corpus() -> None:
    documents = [Document(name=str(d), text="abcdefghij" * 2) for d in range(5)]
    windows, notes = cut(documents, LETTERS, context=10, stride=5, max_windows=5)
    assert [w.document for w in windows] == ["0", "1", "2", "3", "4"]
    assert notes == ["5 of 15 windows, at even distances"]


def test_bytes_of_text_whose_characters_are_split_over_tokens() -> None:
    """One token a byte: windows end inside characters, and yet their bytes add up."""
    coder = coder_of(byte_tokenizer())
    text = "añ→🙂漢字é " * 9
    tokens = len(text.encode())
    for stride in (1, 2, 3, 5, 7, 11):
        windows, _ = cut([Document(name="d", text=text)], coder, context=12, stride=stride)
        head = coder.decode(coder.encode(text)[: 12 - stride]).rstrip("\ufffd")
        assert sum(w.num_bytes for w in windows) == tokens - len(head.encode())


def test_a_sign_of_broken_text_is_text() -> None:
    coder = coder_of(byte_tokenizer())
    windows, _ = cut([Document(name="d", text="ab\ufffd\ufffd")], coder, context=9, stride=7)
    assert sum(w.num_bytes for w in windows) == 6


# --- the grid -------------------------------------------------------------------------------------


def variant(name: str, **options: Any) -> Variant:
    config = DecodeConfig.from_mapping({"method": "autoregressive", **options})
    return Variant(name=name, config=config)


def grid() -> list[Variant]:
    return [
        variant(UNCOMPRESSED),
        *(variant(f"{p}@0.5", press=p, compression_ratio=0.5) for p in ("knorm", "random", "tova")),
        variant("tova@0", press="tova", compression_ratio=0),
    ]


RUNS = {
    UNCOMPRESSED: losses(20.0, 30.0),
    "knorm@0.5": losses(21.0, 31.2, live=4.0),
    "random@0.5": losses(23.0, 33.0, live=4.0),
    "tova@0.5": losses(24.0, 32.0, live=4.0),
    "tova@0": losses(20.0, 30.0),
}


def test_each_press_is_compared_with_the_whole_cache_and_the_control() -> None:
    nothing = variant("random@0", press="random", compression_ratio=0)
    results = report([*grid(), nothing], {**RUNS, nothing.name: RUNS[UNCOMPRESSED]})
    assert list(results) == [*RUNS, nothing.name]
    assert "over_uncompressed" not in results[UNCOMPRESSED]
    assert results["knorm@0.5"]["over_uncompressed"]["nats_per_token"] == pytest.approx(0.11)
    assert results["knorm@0.5"]["over_random"]["nats_per_token"] == pytest.approx(-0.19)
    assert results["knorm@0.5"]["live_share"] == 0.5
    assert "over_random" not in results["random@0.5"]
    assert "over_random" not in results["tova@0"], "nothing is dropped, so nothing is chosen"
    assert against_random(results) == ([], ["tova@0.5"])


@pytest.mark.parametrize(
    ("distance", "error", "expected"),
    [
        (-0.3, 0.1, ([], [])),
        (-0.1, 0.1, ([], ["p"])),
        (0.1, 0.1, ([], ["p"])),
        (0.3, 0.1, (["p"], [])),
        (0.0, None, ([], ["p"])),
        (0.1, None, (["p"], [])),
    ],
)
def test_two_standard_errors_decide(
    distance: float, error: float | None, expected: tuple[list[str], list[str]]
) -> None:
    result = {"over_random": {"nats_per_token": distance, "standard_error": error}}
    assert against_random({"p": result, "whole": {}}) == expected


def test_a_press_that_a_model_cannot_have_is_named_and_left_out() -> None:
    def new_model(config: DecodeConfig) -> TwoTokens:
        if config.compression and config.compression.press == "tova":
            raise ConfigError("press", "tova needs queries")
        return TwoTokens()

    windows = [window([0, 1, 0, 0], 2)]
    runs, notes = run_grid(grid(), windows, None, new_model, lambda: None)
    assert list(runs) == [UNCOMPRESSED, "knorm@0.5", "random@0.5"]
    assert notes[0] == "tova@0.5 is left out: press: tova needs queries"
    with pytest.raises(ConfigError, match="tova needs queries"):
        run_grid(grid()[3:], windows, None, new_model, lambda: None)


def test_progress_counts_windows() -> None:
    seen: list[int] = []
    measure(TwoTokens, [window([0, 1], 1)] * 3, None, lambda: seen.append(1))
    assert len(seen) == 3


def document() -> dict[str, Any]:
    return {
        "role": "target",
        "model": "<b>model</b>",
        "dtype": "float32",
        "device": "cpu",
        "environment": {"processor": "a processor", "threads": 1, "gpu": None},
        "corpus": {"name": "book.txt"},
        "plan": {"context": 12, "stride": 6, "interval": 64, "positions": "original",
                 "presses": ["knorm@0.5"]},
        "notes": ["a remark"],
        "results": report(grid(), RUNS),
    }  # fmt: skip


def test_the_table_says_what_was_measured_and_who_loses() -> None:
    lines = table(document()).splitlines()
    assert lines[2] == (
        "book.txt: 20 tokens (80 bytes) counted in 2 windows of 12, the last 6 of each; presses "
        "act after the first part and every 64 tokens, positions original"
    )
    row = next(line for line in lines if line.startswith("knorm@0.5"))
    assert "+0.1100 ± 0.0100" in row
    assert row.endswith("50%")
    assert any(line == "neither better nor worse by as much: tova@0.5" for line in lines)
    assert len({len(line) for line in lines[4:10]}) == 1, "columns are aligned"


def test_an_interval_that_is_there_for_nobody_has_no_column() -> None:
    made = document()
    made["results"] = report(grid()[:1], {UNCOMPRESSED: losses(20.0)})
    head = table(made).splitlines()[4]
    assert head.split() == ["perplexity", "nats/token", "bits/byte", "live", "KV", "MB"]


def test_the_plot_has_a_line_for_each_press_from_the_whole_cache_on(tmp_path: Path) -> None:
    made = document()
    lines = {trace.name: trace for trace in pareto.figure(made).data}
    assert list(lines) == ["knorm", "random", "tova", UNCOMPRESSED]
    assert list(lines["knorm"].x) == [4e-6, 8e-6]
    assert lines["knorm"].y[1] == pytest.approx(math.exp(2.5))
    assert lines["knorm"].error_y.array[0] > 0
    assert lines[UNCOMPRESSED].error_y.array[0] == 0
    pareto.write_html(made, json.dumps(made), tmp_path / "page.html")
    content = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>model</b>" not in content
    assert "&lt;b&gt;model&lt;/b&gt;" in content
    assert "cdn.plot.ly" not in content.split("<body>")[0]


# --- argv -----------------------------------------------------------------------------------------


def choice(*argv: str) -> PplChoice:
    return ppl_choice(build_parser().parse_args(["ppl", "--corpus", "x", *argv]))


def test_without_a_press_only_the_whole_cache_is_measured() -> None:
    asked = choice()
    assert list(asked.variants) == [UNCOMPRESSED]
    assert (asked.context, asked.stride, asked.max_windows) == (1024, 512, None)
    assert asked.role is Role.TARGET


def test_presses_and_ratios_multiply() -> None:
    asked = choice("--press", "knorm,tova", "--compression-ratio", "0.25,0.9")
    names = ["knorm@0.25", "knorm@0.9", "tova@0.25", "tova@0.9"]
    assert list(asked.variants) == [UNCOMPRESSED, *names]
    press = asked.variants["tova@0.9"].compression
    assert press is not None
    assert (press.press, press.compression_ratio, press.interval) == ("tova", 0.9, 64)
    assert press.apply_to == ("target",)


def test_the_grid_is_every_press_at_three_ratios() -> None:
    asked = choice("--grid", "--role", "draft")
    assert len(asked.variants) == 1 + 10 * 3
    press = asked.variants["pyramid@0.75"].compression
    assert press is not None
    assert press.apply_to == ("draft",)
    assert list(choice("--grid", "--press", "tova").variants)[1:] == [
        "tova@0.25", "tova@0.5", "tova@0.75",
    ]  # fmt: skip


def test_the_grid_in_the_cache_is_every_press_but_the_uneven_one() -> None:
    asked = choice("--grid", "--press-positions", "in_cache")
    assert len(asked.variants) == 1 + 9 * 3
    assert not [name for name in asked.variants if name.startswith("pyramid")]


def test_a_budget_and_a_press_that_acts_once() -> None:
    asked = choice("--press", "knorm", "--max-cache-tokens", "512", "--press-interval", "0")
    press = asked.variants["knorm@512tokens"].compression
    assert press is not None
    assert (press.max_cache_tokens, press.interval) == (512, None)
    assert asked.interval is None


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--role", "judge"], "role: must be one of draft, intermediate, target"),
        (["--role", "draft", "--target", "m"], "role: is of the preset's models"),
        (["--dtype", "float16"], "dtype: must be one of auto, float32, bfloat16"),
        (["--context", "1"], "context: must be a whole number, 2 or more"),
        (["--context", "many"], "context: must be a whole number, 2 or more"),
        (["--stride", "0"], "stride: must be a whole number, 1 or more"),
        (["--stride", "1024"], "stride: must be from 1 to 1023, not 1024"),
        (["--max-windows", "0"], "max_windows: must be a whole number, 1 or more"),
        (["--press", "squash"], "press: must be among streaming, "),
        (["--press", "knorm,knorm"], "press: names knorm twice"),
        (["--press", "knorm", "--compression-ratio", "1"], "compression_ratio: must be from 0"),
        (["--press", "knorm", "--compression-ratio", "half"], "compression_ratio: must be a num"),
        (["--compression-ratio", "0.5"], "press: is missing"),
        (["--max-cache-tokens", "64"], "press: is missing"),
        (["--press", "knorm", "--max-cache-tokens", "2"], "max_cache_tokens: must be 21 or more"),
        (
            ["--press", "knorm", "--max-cache-tokens", "64", "--compression-ratio", "0.5"],
            "max_cache_tokens: can't be given with a compression_ratio",
        ),
        (["--press", "knorm", "--press-interval", "-1"], "press_interval: must be a whole number"),
        (["--press-positions", "x"], "press_positions: must be one of"),
        (["--press", "knorm", "--press-sinks", "x"], "press_sinks: must be a whole number"),
        (["--out", __file__], "out: must be a folder"),
    ],
)
def test_bad_values_are_one_sentence(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["ppl", "--corpus", "x", *argv])
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith(f"error: {message}")


def test_a_data_set_to_download_is_one_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["download", "--dataset", "c4"]) == 2
    assert capsys.readouterr().err == (
        "error: dataset: must be one of wikitext-2, pg19, not 'c4'\n"
    )
    assert cli.main(["download"]) == 2
    assert "error: preset: is missing" in capsys.readouterr().err
