"""Imports point one way, and nothing heavy is imported before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "fastinfer"

# A file may import its own package, and from others only parts of a lower rank.
RANKS = {
    "config": 0, "events": 0,
    "argv": 1, "clock": 1, "info": 1, "metrics": 1, "text": 1,
    "presses": 2,
    "decoding": 3, "models": 3,
    "composition": 4, "steps": 4,
    "engine": 5,
    "evaluation": 6, "shelf": 6, "training": 6, "terminal": 6,
    "bench_options": 7, "chat_options": 7, "models_options": 7, "ppl_options": 7,
    "press_options": 7, "reporting": 7, "serve_options": 7,
    "options": 8,
    "bench_cli": 9, "http": 9, "models_cli": 9, "ppl_cli": 9,
    "ui": 10,
    "cli": 10,
    "__main__": 11,
}  # fmt: skip

# Who may import what is heavy.
ALLOWED = {
    "torch": {"decoding", "models", "presses", "engine", "evaluation", "training"},
    "transformers": {"models", "training"},
    "tokenizers": {"models", "training"},
    "safetensors": {"models", "training"},
    "datasets": {"evaluation"},
    "huggingface_hub": {"models", "evaluation"},
    "gradio": {"ui"},
    "plotly": {"ui", "evaluation"},
    "tqdm": {"training", "bench_cli", "models_cli", "ppl_cli"},
    "fastapi": {"http", "ui"},
}

FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """`fastinfer/ui/demo.py` is of `ui`, `fastinfer/cli.py` of `cli`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Dotted names of everything that a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            module = node.module or ""
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":  # the public names, gathered from anywhere below
        return
    assert part in RANKS, f"give {part} a rank in this test"
    for name in imported(path):
        top, _, rest = name.partition(".")
        if top == "fastinfer":
            other = rest.split(".")[0]
            if other in RANKS and other != part:
                assert RANKS[other] < RANKS[part], f"{part} must not import {name}"
                assert (part, other) != ("decoding", "presses"), "the loop knows no presses"
        elif top in ALLOWED:
            assert part in ALLOWED[top], f"{part} must not import {top}"


def test_two_files_of_the_evaluation_draw() -> None:
    """The rest of it is pure text and arithmetic, one file a report aside."""
    drawing = {
        path.name
        for path in (PACKAGE / "evaluation").glob("*.py")
        if any(name.split(".")[0] == "plotly" for name in imported(path))
    }
    assert drawing == {"pareto.py", "report.py"}


def test_the_walk_sees_imports_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text("import a.b\nfrom c import d\ndef f():\n    from fastinfer.ui import x\n")
    assert imported(file) == {"a.b", "c.d", "fastinfer.ui.x"}


@pytest.mark.parametrize(
    "statement",
    [
        "import fastinfer",
        "from fastinfer import cli; cli.main(['generate', '--prompt', 'x', '--temperature', '-1'])",
        "from fastinfer import cli; cli.main(['--help'])",
        "from fastinfer import cli; cli.main(['generate', '--help'])",
        "from fastinfer import cli; cli.main(['bench', '--repeats', '0'])",
        "from fastinfer import cli; cli.main(['ppl', '--corpus', 'x', '--context', '1'])",
        "from fastinfer import cli; cli.main(['download'])",
    ],
)
def test_nothing_heavy_is_imported_before_it_is_needed(statement: str) -> None:
    script = (
        f"import sys\ntry:\n    {statement}\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'transformers', 'gradio', 'plotly', 'datasets', 'numpy', 'pandas'}\n"
        "print(*sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == ""


def test_models_of_our_own_decoder_do_without_transformers_models() -> None:
    """Two seconds of every start."""
    script = "import fastinfer.engine, sys; print('transformers.modeling_utils' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "False\n", done.stderr
