"""The command line against a fake engine: what goes to stdout, what to stderr, which exit code."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest
from fake_engine import FakeEngine

from fastinfer import cli
from fastinfer.events import Event, Origin, to_json
from fastinfer.options import ModelChoice


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def generate(*options: str, engine: FakeEngine | None = None) -> tuple[int, FakeEngine]:
    engine = engine or FakeEngine()
    return cli.main(["generate", *options], load=engine.load), engine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --- text and figures -------------------------------------------------------------------------


def test_text_goes_to_stdout_and_figures_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    code, engine = generate("--prompt", "The")
    out, err = capsys.readouterr()
    assert code == 0
    assert out == " old man\nandé the\n"
    assert engine.prompt == "The"
    assert engine.closed
    lines = dict(line.split("  ", 1) for line in err.splitlines() if "  " in line)
    rows = {label.strip(): value.strip() for label, value in lines.items() if label.strip()}
    assert rows["TTFT"] == "20.0 ms"
    assert rows["TPOT"] == "10.00 ms a token"
    assert rows["speed"] == "100.0 tok/s after the first token"
    assert rows["mean accepted"] == "4.00 tokens a target pass"
    assert rows["accepted"] == "by the target: 100% (3 of 3 tested, 3 drafted)"
    assert rows["time"] == "drafting 1.0 ms, verifying 2.0 ms"
    assert rows["origins"] == "draft 1, intermediate 1, resampled 1, bonus 1, target 1"
    assert rows["KV cache"] == "draft 8 entries 0.80 MB, target 9 entries 1.50 MB"
    assert rows["models"] == "draft small, target large"
    assert rows["run on"] == "cpu, float32"
    assert rows["seed"] == "11"
    assert rows["lossless"].startswith("yes")
    assert "by position  1.00 1.00 1.00" in err


@pytest.mark.parametrize(
    ("options", "draft"),
    [
        ((), "prompt-lookup"),
        (("--draft", "model"), "model"),
        (("--draft", "self"), "self"),
        (("--model-defaults",), "prompt-lookup"),
    ],
)
def test_without_a_draft_model_the_text_drafts_unless_told_who(
    options: tuple[str, ...], draft: str
) -> None:
    _, engine = generate("--prompt", "The", *options, engine=FakeEngine(drafts=False))
    assert engine.config is not None and engine.config.draft == draft
    assert (engine.config.sampling.top_k == 7) is ("--model-defaults" in options)


def test_each_step_is_shown_as_it_comes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[str] = []

    class Watching(FakeEngine):
        def events(self) -> Iterator[Event]:
            for event in super().events():
                yield event
                shown.append(capsys.readouterr().out)

    generate("--prompt", "The", engine=Watching())
    assert shown == ["", " old", " man\nandé the", ""]


def test_a_text_with_a_last_line_break_gets_no_second_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    generate(
        "--prompt",
        "x",
        engine=FakeEngine((("a", Origin.TARGET), ("b\n", Origin.DRAFT))),
    )
    assert capsys.readouterr().out == "ab\n"


def test_the_baseline_has_no_acceptance_to_speak_of(capsys: pytest.CaptureFixture[str]) -> None:
    generate("--prompt", "x", engine=FakeEngine(method="autoregressive"))
    assert "accepted by" not in " ".join(capsys.readouterr().err.split())


def test_escape_sequences_in_a_model_s_name_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine(target="large\x1b[2J")
    generate("--prompt", "x", engine=engine)
    assert "target large\u241b[2J" in capsys.readouterr().err


def test_json_prints_each_event_on_a_line_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, engine = generate("--prompt", "The", "--json", "-v")
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert [json.loads(line) for line in lines] == [
        json.loads(json.dumps(to_json(event))) for event in engine.events()
    ]


# --- origins ----------------------------------------------------------------------------------


def test_verbose_colours_each_token_and_explains_the_colours(
    capsys: pytest.CaptureFixture[str],
) -> None:
    generate("--prompt", "The", "-v")
    out, err = capsys.readouterr()
    on = "\x1b[38;5;16;48;5;{}m{}\x1b[0m"
    assert out == (
        on.format(36, " old")
        + on.format(74, " man")
        + "\n"  # no colour runs over a line break
        + on.format(221, "and")
        + on.format(175, "é the")
        + "\n"
    )
    for origin in Origin:
        assert origin.value in err


def test_true_colours_where_the_terminal_has_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    generate("--prompt", "The", "-v")
    assert "\x1b[38;2;0;0;0;48;2;86;180;233m man\x1b[0m" in capsys.readouterr().out


def test_no_color_marks_origins_by_letters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    generate("--prompt", "The", "-v")
    out, err = capsys.readouterr()
    assert out == "[t: old][d: man][i:\nand][b:é the]\n"
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    ("method", "absent"),
    [("speculative", {"intermediate"}), ("cascade", set())],
)
def test_the_legend_names_only_what_the_method_can_give(
    method: str,
    absent: set[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    generate("--prompt", "The", "-v", engine=FakeEngine(method=method))
    err = capsys.readouterr().err
    named = {origin.value for origin in Origin if f"[{origin.value[0]}:{origin.value}]" in err}
    assert named == {origin.value for origin in Origin} - absent


HOSTILE = (("a", Origin.TARGET), ("\x1b[2J\x9b31m\x07\r\x7f\tz", Origin.DRAFT))


@pytest.mark.parametrize("no_color", ["", "1"])
def test_escape_sequences_of_a_model_reach_no_marked_output(
    no_color: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    generate("--prompt", "The", "-v", engine=FakeEngine(HOSTILE))
    out = capsys.readouterr().out
    assert "\u241b[2J\\x9b31m\u2407\u240d\u2421\tz" in out
    assert "\x1b[2J" not in out
    assert not set(out) & set("\x9b\x07\r\x7f")


def test_escape_sequences_of_a_model_reach_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    generate("--prompt", "The", engine=FakeEngine(HOSTILE))
    assert screen.getvalue() == "a\u241b[2J\\x9b31m\u2407\u240d\u2421\tz\n"


def test_a_pipe_gets_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    generate("--prompt", "The", engine=FakeEngine(HOSTILE))
    assert capsys.readouterr().out == "a\x1b[2J\x9b31m\x07\r\x7f\tz\n"


# --- being stopped ----------------------------------------------------------------------------


def test_ctrl_c_keeps_the_text_and_the_figures_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    code, engine = generate("--prompt", "x", engine=FakeEngine(failure=KeyboardInterrupt()))
    out, err = capsys.readouterr()
    assert code == 130
    assert out == " old\n"
    assert "interrupted" in err
    assert "Traceback" not in err
    assert engine.closed


def test_ctrl_c_while_loading(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(choice: ModelChoice) -> FakeEngine:
        raise KeyboardInterrupt

    assert cli.main(["generate", "--prompt", "x"], load=interrupted) == 130
    assert capsys.readouterr() == ("", "")


def test_logits_that_are_not_finite_end_the_run_with_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failure = FloatingPointError("the draft model's logits for position 4 are not finite")
    code, engine = generate("--prompt", "x", engine=FakeEngine(failure=failure))
    assert code == 1
    assert engine.closed
    assert capsys.readouterr() == (" old\n", f"error: {failure}\n")


def test_a_write_that_fails_closes_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    code, engine = generate("--prompt", "x")
    assert code == cli.EXIT_BROKEN_PIPE
    assert engine.closed
