"""The project's own papers agree with each other and with the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import fastinfer
from fastinfer.config import FLAT_FIELDS
from fastinfer.evaluation.hub_corpora import HUB_CORPORA
from fastinfer.models.catalog import PRESETS
from fastinfer.options import build_parser
from scripts import cli_docs

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def requirements(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text().splitlines()
    parsed = [Requirement(line) for line in lines if line and not line.startswith(("#", "-r"))]
    return {requirement.name: requirement for requirement in parsed}


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


# --- packages -----------------------------------------------------------------------------------


REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "requirements-bench.txt")


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_what_is_installed_is_what_is_asked_for(name: str) -> None:
    for requirement in requirements(name).values():
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            pytest.fail(f"{requirement.name} is missing: run make test")
        assert requirement.specifier.contains(installed, prereleases=True), requirement.name


def test_every_range_has_two_ends() -> None:
    for name in REQUIREMENTS:
        for requirement in requirements(name).values():
            operators = {spec.operator for spec in requirement.specifier}
            assert operators == {">=", "<"}, requirement


def test_the_package_reads_its_requirements_from_the_one_list() -> None:
    dynamic = PROJECT["tool"]["setuptools"]["dynamic"]
    assert dynamic["dependencies"] == {"file": ["requirements.txt"]}
    assert dynamic["version"] == {"attr": "fastinfer.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", fastinfer.__version__)
    assert (ROOT / "requirements-dev.txt").read_text().count("-r requirements.txt") == 1


def space_header() -> dict[str, Any]:
    """What the README's head tells a Hugging Face Space."""
    front = re.match(r"---\n(.*?)\n---\n", (ROOT / "README.md").read_text(), re.DOTALL)
    if front is None:
        pytest.skip("the README has no Space header")
    return dict(yaml.safe_load(front[1]))


def test_a_space_runs_the_gradio_that_was_tested() -> None:
    """huggingface/huggingface.js#1622: a Space installs what its README names, not requirements."""
    named = str(space_header()["sdk_version"])
    assert requirements("requirements.txt")["gradio"].specifier.contains(named)
    assert named == version("gradio")


def test_the_space_header_names_what_there_is() -> None:
    header = space_header()
    assert header["sdk"] == "gradio" and (ROOT / header["app_file"]).is_file()
    assert header["license"] == PROJECT["project"]["license"].lower()
    assert header["python_version"] == "3.12"  # what ZeroGPU has, and a text: 3.10 would be 3.1
    repositories = {
        model.source.split("@")[0]
        for preset in PRESETS.values()
        for model in preset.models.values()
    }
    assert set(header["models"]) <= repositories
    assert set(header["datasets"]) <= {corpus.repository for corpus in HUB_CORPORA.values()}
    assert len(header["short_description"]) <= 60  # the Hub refuses longer ones


def test_no_file_is_too_large_for_a_space() -> None:
    """Above 10 MB a Space wants Git LFS."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    large = {f.name for f in files if f.is_file() and f.stat().st_size > 9_000_000}
    assert not large


def test_one_least_python_everywhere() -> None:
    least = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert PROJECT["tool"]["mypy"]["python_version"] == least
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + least.replace(".", "")
    for name in ("README.md", "Makefile"):
        assert f"Python {least} or newer" in (ROOT / name).read_text(), name


# --- commands -----------------------------------------------------------------------------------


def test_the_first_two_commands_of_the_readme_run_and_test_it() -> None:
    first = blocks("README.md", "sh")[0].splitlines()
    assert [shlex.split(line, comments=True) for line in first] == [
        ["make", "demo"],
        ["make", "test"],
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_command_in_a_document_exists(path: Path) -> None:
    code = re.findall(r"```\w*\n.*?```|`[^`\n]+`", path.read_text(), re.DOTALL)
    named = {name for part in code for name in re.findall(r"(?:^|`)make ([a-z-]+)", part, re.M)}
    assert named <= make_targets()


def test_every_command_line_in_the_readme_parses() -> None:
    lines = [
        line
        for block in blocks("README.md", "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if "-m fastinfer" in line
    ]
    assert lines
    for line in lines:
        argv = shlex.split(line, comments=True)
        build_parser().parse_args(argv[argv.index("fastinfer") + 1 :])


def test_the_help_in_the_documents_is_the_real_help() -> None:
    assert cli_docs.TARGET.read_text() == cli_docs.render(), "run: make cli-docs"


def test_the_help_tells_every_option_and_every_value_of_a_choice() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fastinfer", "generate", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    words = set(re.findall(r"[\w-]+", done.stdout))
    options = {"--" + name.replace("_", "-") for name in FLAT_FIELDS if name != "use_cache"}
    for name in options | {"--no-cache", "google", "deepmind", "prompt-lookup", "cascade"}:
        assert name in words


# --- documents ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(path: Path) -> None:
    text = path.read_text()
    links = re.findall(r"\]\(([^)#\s]+)", text)
    links += re.findall(r"(?:src|srcset)=\"([^\"]+)\"", text)
    for link in links:
        if not link.startswith(("http:", "https:")) and not link.startswith("assets/screenshot-"):
            assert (path.parent / link).exists(), link


def test_the_tree_in_the_design_is_the_real_one() -> None:
    tree = blocks("docs/design.md", "")[0]
    folders: list[str] = []
    named = set()
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth:] = [name]
        path = ROOT.joinpath(*folders)
        if name.endswith((".py", "/")):
            assert path.exists(), "/".join(folders)
            named.add(path)
    parts = {path for path in (ROOT / "fastinfer").iterdir() if not path.name.startswith("_")}
    assert parts <= named, f"add to docs/design.md: {sorted(parts - named)}"


def test_decisions_are_numbered_without_gaps_and_say_the_four_things() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert text.startswith(f"# {int(page.name[:4])}. "), page.name
        for part in ("Context", "Choice", "Consequences", "What would change it"):
            assert f"**{part}.**" in text, f"{page.name}: {part}"


def test_the_licence_is_the_whole_apache_licence() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["project"]["license"] == "Apache-2.0"
