"""Options: what argv says reaches config and loader, and what is wrong is named in one line."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from fastinfer import cli
from fastinfer.config import CompressionConfig, ConfigError, DecodeConfig
from fastinfer.options import ModelChoice


def generate(options: str, *more: str) -> tuple[int, FakeEngine]:
    engine = FakeEngine()
    return cli.main(["generate", *shlex.split(options), *more], load=engine.load), engine


# --- options ----------------------------------------------------------------------------------


def test_every_option_reaches_the_config() -> None:
    _, engine = generate(
        "--prompt x --method cascade --rule coupled --max-new-tokens 9 --min-new-tokens 2 "
        "--temperature 0.5 --top-k 5 --top-p 0.9 --min-p 0.1 --typical-p 0.8 --seed 0 "
        "--repetition-penalty 1.1 --presence-penalty 0.2 --frequency-penalty -0.3 "
        "--gamma 6 --gamma-min 2 --gamma-max 8 --gamma-policy additive --inner-gamma 3 "
        "--gamma-threshold 0.7 --rounds 4 --no-cache --ignore-eos --logprobs 3 "
        "--stop one --stop two --draft prompt-lookup"
    )
    assert engine.config is not None
    assert engine.config.to_mapping() == {
        "method": "cascade", "draft": "prompt-lookup", "rule": "coupled", "max_new_tokens": 9,
        "min_new_tokens": 2, "stop": ["one", "two"], "ignore_eos": True, "rounds": 4,
        "use_cache": False, "logprobs": 3, "gamma_threshold": 0.7,
        "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.8,
        "repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": -0.3, "seed": 0,
        "gamma_policy": "additive", "gamma": 6, "gamma_min": 2, "gamma_max": 8, "inner_gamma": 3,
        "intermediate": "model", "shadow_every": 0, "press": None,
        "compression_ratio": None, "max_cache_tokens": None, "press_interval": None,
        "press_on": None, "press_positions": None, "press_sinks": None,
    }  # fmt: skip


def test_every_option_of_a_press_reaches_the_config() -> None:
    _, engine = generate(
        "--prompt x --press tova --compression-ratio 0.25 --press-interval 32 "
        "--press-on target,draft --press-positions in_cache --press-sinks 2 --shadow-every 5"
    )
    assert engine.config is not None
    assert engine.config.compression == CompressionConfig(
        press="tova", compression_ratio=0.25, interval=32, apply_to=("target", "draft"),
        positions="in_cache", num_sinks=2,
    )  # fmt: skip
    assert engine.config.shadow_every == 5
    _, budget = generate("--prompt x --press knorm --max-cache-tokens 512")
    assert budget.config is not None and budget.config.compression is not None
    assert budget.config.compression.max_cache_tokens == 512


@pytest.mark.parametrize("method", ["speculative", "cascade"])
def test_self_is_a_kind_of_drafting_and_no_model(method: str) -> None:
    _, engine = generate(f"--prompt x --method {method} --draft self --intermediate self")
    assert engine.config is not None and engine.choice is not None
    assert (engine.config.draft, engine.config.intermediate) == ("self", "self")
    assert (engine.choice.draft, engine.choice.intermediate) == (None, None)
    _, other = generate("--prompt x --draft small --intermediate middle")
    assert other.config is not None and other.choice is not None
    assert (other.config.draft, other.config.intermediate) == ("model", "model")
    assert (other.choice.draft, other.choice.intermediate) == ("small", "middle")


def test_no_option_means_the_config_s_own_defaults() -> None:
    _, engine = generate("--prompt x")
    assert engine.config == DecodeConfig()
    assert engine.choice == ModelChoice(
        preset="nano", target=None, intermediate=None, draft=None, dtype="auto", device="auto"
    )


def test_the_older_names_of_options() -> None:
    _, engine = generate(
        "--input x --target_model_name big --approx_model_name small --max_tokens 7 --verbose"
    )
    assert engine.prompt == "x"
    assert engine.config is not None
    assert engine.config.max_new_tokens == 7
    assert engine.choice is not None
    assert (engine.choice.target, engine.choice.draft) == ("big", "small")


@pytest.mark.parametrize("rule", ["google", "deepmind", "residual"])
def test_google_and_deepmind_are_one_rule(rule: str) -> None:
    _, engine = generate(f"--prompt x --rule {rule}")
    assert engine.config is not None
    assert engine.config.rule == "residual"


@pytest.mark.parametrize(
    ("options", "kind", "model"),
    [
        ("", "model", None),
        ("--draft model", "model", None),
        ("--draft prompt-lookup", "prompt-lookup", None),
        ("--draft some/folder", "model", "some/folder"),
        ("--draft model --approx_model_name tiny", "model", "tiny"),
    ],
)
def test_draft_is_a_kind_or_a_model(options: str, kind: str, model: str | None) -> None:
    _, engine = generate(f"--prompt x {options}")
    assert engine.config is not None
    assert engine.choice is not None
    assert (engine.config.draft, engine.choice.draft) == (kind, model)


def test_models_device_and_dtype_reach_the_loader() -> None:
    _, engine = generate(
        "--prompt x --preset pythia --target a --intermediate b --draft c "
        "--dtype float32 --device cuda:1"
    )
    assert engine.choice == ModelChoice(
        preset="pythia", target="a", intermediate="b", draft="c", dtype="float32", device="cuda:1"
    )


# --- prompts ----------------------------------------------------------------------------------


def test_a_prompt_from_a_file_keeps_all_but_its_last_line_break(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes("\ufeff  Déjà vu\n\nsaid he\r\n".encode())
    _, engine = generate("--prompt-file", str(file))
    assert engine.prompt == "  Déjà vu\n\nsaid he"


def test_a_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Once upon\n")))
    _, engine = generate("--prompt-file -")
    assert engine.prompt == "Once upon"


# --- bad input: one line, exit code 2, no traceback, and no model loaded ------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--temperature -1", "temperature: must be from 0 to 100, not -1"),
        ("--temperature hot", "temperature: must be a number from 0 to 100, not 'hot'"),
        ("--temperature nan", "temperature: must be from 0 to 100, not nan"),
        ("--top-p 2", "top_p: must be above 0 and at most 1, not 2"),
        ("--top-k 1.5", "top_k: must be a whole number 0 or more, not 1.5"),
        ("--gamma 0", "gamma: must be from 1 to 64, not 0"),
        (
            "--gamma-policy wild",
            "gamma_policy: must be one of cost_aware, ",
        ),
        ("--max-new-tokens 0", "max_new_tokens: must be 1 or more, not 0"),
        ("--method magic", "method: must be one of autoregressive, speculative, cascade, not"),
        ("--rule openai", "rule: must be one of residual, coupled, not 'openai'"),
        ("--seed -1", "seed: must be from 0 to"),
        ("--stop=", "stop: must not hold an empty text"),
        ("--min-new-tokens 500", "min_new_tokens: must be at most max_new_tokens (128)"),
        ("--draft a --approx_model_name b", "draft: is given twice"),
        ("--prompt-file x", "prompt: is given twice"),
    ],
)
def test_a_bad_value_is_named_in_one_line(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, engine = generate(f"--prompt x {options}")
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert engine.choice is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "prompt: is missing"),
        (["--prompt", ""], "prompt: is empty"),
        (["--prompt", "\udcff"], "prompt: must be a text in UTF-8"),
        (["--prompt", "x", "--stop", "\udcff"], "stop: must be a text in UTF-8"),
        (["--prompt-file", "no/such/file"], "prompt_file: no/such/file: No such file or directory"),
    ],
)
def test_a_bad_prompt_is_named_in_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = generate("", *options)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_a_prompt_file_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "picture"
    file.write_bytes(b"\xff\xd8\xff")
    code, _ = generate("--prompt-file", str(file))
    assert code == 2
    assert capsys.readouterr().err == "error: prompt_file: must be a text in UTF-8\n"


def test_what_the_loader_refuses_is_one_line_without_escapes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(choice: ModelChoice) -> FakeEngine:
        raise ConfigError("target", "there is no folder \x1b[31m\nx; give another")

    assert cli.main(["generate", "--prompt", "x"], load=refuse) == 2
    assert capsys.readouterr().err == (
        "error: target: there is no folder \u241b[31m x; give another\n"
    )


@pytest.mark.parametrize(
    "argv", [["--wat"], ["generate", "--temp", "1"], ["generate", "--seed"], ["dance"]]
)
def test_an_unknown_option_is_one_line_too(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(argv, load=FakeEngine().load)
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "generate" in capsys.readouterr().err
