"""The command line as a real process: pipes, signals, encodings. The engine is a fake one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fastinfer import cli

ROOT = Path(__file__).resolve().parents[2]

# After its first step it waits until its standard input ends.
PATIENT = """
class Fake(FakeEngine):
    def events(self):
        for event in super().events():
            yield event
            if getattr(event, "index", None) == 0:
                sys.stdin.read()
"""


def start(engine: str, **environ: str) -> subprocess.Popen[bytes]:
    """A real process that runs `generate` on an engine, which is given as source text."""
    script = (
        "import functools, sys\n"
        "from fake_engine import FakeEngine\n"
        "from fastinfer import cli\n"
        f"{engine}\n"
        "sys.argv = ['fastinfer', 'generate', '--prompt', 'x']\n"
        "cli.main = functools.partial(cli.main, load=Fake().load)\n"
        "cli.run()\n"
    )
    # Without PYTHONUNBUFFERED, which would hide a missing flush.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT / "tests"), **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_text_leaves_the_process_before_the_run_ends() -> None:
    with start(PATIENT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.read(4) == b" old"  # while the engine waits for its input to end
        process.stdin.close()
        assert process.stdout.read() == " man\nandé the\n".encode()
    assert process.returncode == 0


def test_a_reader_that_goes_away_ends_the_run_quietly() -> None:
    """As `| head -c 4` does."""
    endless = (
        "class Fake(FakeEngine):\n"
        "    def events(self):\n"
        "        while True: yield from super().events()\n"
    )
    with start(endless) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b" old"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == cli.EXIT_BROKEN_PIPE


def test_ctrl_c_at_a_real_process() -> None:
    with start(PATIENT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b" old"
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read().decode()
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors


def test_a_character_that_the_terminal_lacks_is_no_crash() -> None:
    with start("Fake = FakeEngine", PYTHONIOENCODING="ascii") as process:
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert out == b" old man\nand? the\n"
