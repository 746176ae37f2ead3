"""What argv and the environment may say to `serve`, and the address that it takes."""

from __future__ import annotations

import pytest

from fastinfer.config import ConfigError
from fastinfer.events import Role
from fastinfer.http.process import bound
from fastinfer.options import build_parser
from fastinfer.serve_options import ServeChoice, ServeConfig, serve_choice


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTINFER_API_KEY", raising=False)


def choice(*argv: str) -> ServeChoice:
    return serve_choice(build_parser().parse_args(["serve", *argv]))


def test_defaults_stay_on_this_machine() -> None:
    made = choice()
    assert (made.host, made.port, made.preset) == ("127.0.0.1", 5000, "nano")
    assert made.config == ServeConfig()
    assert made.config.api_key is None and made.config.cors_origins == ()


def test_everything_can_be_said() -> None:
    made = choice(
        "--host", "::1", "--port", "0", "--preset", "pythia", "--draft", "d", "--device", "cpu",
        "--max-waiting", "0", "--max-new-tokens", "9", "--max-seconds", "1.5",
        "--max-body-bytes", "10", "--api-key", "k", "--cors-origin", "http://a",
        "--cors-origin", "http://b",
    )  # fmt: skip
    assert (made.host, made.port, made.preset, made.device) == ("::1", 0, "pythia", "cpu")
    assert made.overrides == {Role.DRAFT: "d"}
    assert made.config == ServeConfig(
        max_waiting=0, max_new_tokens=9, max_seconds=1.5, max_body_bytes=10, api_key="k",
        cors_origins=("http://a", "http://b"),
    )  # fmt: skip


def test_the_key_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTINFER_API_KEY", "from-there")
    assert choice().config.api_key == "from-there"
    assert choice("--api-key", "said").config.api_key == "said"
    assert "said" not in repr(choice("--api-key", "said"))


@pytest.mark.parametrize(
    ("field", "argv"),
    [
        ("port", ["--port", "http"]),
        ("port", ["--port", "65536"]),
        ("port", ["--port", "-1"]),
        ("max_waiting", ["--max-waiting", "-1"]),
        ("max_new_tokens", ["--max-new-tokens", "0"]),
        ("max_seconds", ["--max-seconds", "soon"]),
        ("max_seconds", ["--max-seconds", "nan"]),
        ("max_seconds", ["--max-seconds", "0"]),
        ("max_body_bytes", ["--max-body-bytes", "1.5"]),
        ("api_key", ["--api-key", "schlüssel"]),
        ("api_key", ["--api-key", "two\nlines"]),
        ("dtype", ["--dtype", "float8"]),
    ],
)
def test_a_bad_value_names_its_option(field: str, argv: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        choice(*argv)
    assert caught.value.field == field


def test_a_taken_or_impossible_address_is_one_sentence() -> None:
    with bound("127.0.0.1", 0) as sock:
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"{port} on 127.0.0.1: .*choose another"):
            bound("127.0.0.1", port)
    for host in ("no.such.host.invalid", "a..b", "192.0.2.1"):
        with pytest.raises(ConfigError):
            bound(host, 0)
