"""What `ppl` is asked for, and what it refuses."""

from __future__ import annotations

import pytest

from fastinfer import cli
from fastinfer.evaluation.names import UNCOMPRESSED
from fastinfer.events import Role
from fastinfer.options import build_parser
from fastinfer.ppl_options import PplChoice, ppl_choice


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
