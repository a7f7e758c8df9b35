"""The README is true: its snippets run, and what it names exists, completely."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from qglow.cli.failure import BROKEN_PIPE, INTERRUPTED, TERMINATED
from qglow.cli.main import app
from qglow.core.errors import QglowError
from qglow.importer.rules import contributed_operators, supported_operators
from qglow.numerics.schema import Schema
from qglow.recipe import DataMapping, Preprocessing, Recipe, parse_recipe
from qglow.recipe.schema import INTERPOLATIONS
from qglow.report.baseline_file import load_baseline
from tests.zoo import REPOSITORY

README = REPOSITORY / "README.md"
TEXT = README.read_text(encoding="utf-8")
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
CALIBRATIONS = ("minmax", "kl", "mse", "percentile:P")
ROOT_OPTIONS = {"--debug", "--version", "--help", "-h"}


def section(title: str) -> str:
    """A section's text, subsections included, by its title."""
    match = re.search(rf"^(#+) {re.escape(title)}$", TEXT, re.MULTILINE)
    assert match, f"no section '{title}'"
    level = len(match[1])
    rest = TEXT[match.end() :]
    end = re.search(rf"^#{{1,{level}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def blocks(text: str, language: str, marked: bool = False) -> list[str]:
    """The code blocks of a language; only those that a comment marks as runnable, if asked."""
    before = "<!-- runs -->\n" if marked else ""
    return re.findall(rf"^{before}```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def options_of(command: str) -> set[str]:
    """Every name of every option of a command, without help."""
    params = COMMANDS[command].params
    names = {name for p in params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}
    return names - {"--help", "-h"}


def named_options(text: str) -> set[str]:
    """Options that a text names in code."""
    code = " ".join(re.findall(r"`([^`]+)`", text))
    return set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", code))


def command_lines() -> Iterator[list[str]]:
    """Every command line of qglow in a shell block, as words, without comments."""
    for block in blocks(TEXT, "sh"):
        for line in block.splitlines():
            words = line.split(" #")[0].split()
            if words[:1] == ["qglow"]:
                yield words[1:]


def first_cells(text: str) -> list[str]:
    """The first cell of every row of the tables in a text, without titles and rulers."""
    rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    following_rows = [*rows[1:], ""] if rows else []
    return [cell for cell, following in zip(rows, following_rows, strict=True)
            if not cell.startswith("---") and not following.startswith("---")]  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the parts of a checkout that snippets use."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("calib_data", "recipes"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


def run(words: list[str], folder: Path) -> None:
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": paths, "QGLOW_CACHE": str(folder / "cache")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_shell_snippets_run(checkout: Path) -> None:
    found = blocks(TEXT, "sh", marked=True)
    assert found
    for snippet in found:
        run(["bash", "-euo", "pipefail", "-c", snippet], checkout)


@pytest.mark.slow
def test_python_snippets_run(checkout: Path) -> None:
    found = blocks(TEXT, "python", marked=True)
    assert found
    for snippet in found:
        run([sys.executable, "-c", snippet], checkout)


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    titles = re.findall(r"^### qglow (.+)$", TEXT, re.MULTILINE)
    assert sorted(titles) == sorted(COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_section_of_a_command_names_all_its_options_and_no_others(command: str) -> None:
    text = re.split(r"^A two-operator model", section(f"qglow {command}"), flags=re.MULTILINE)[0]
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    first = "\n".join(f"| {cell} |" for cell in first_cells(table))
    documented, existing = named_options(first), options_of(command)
    # Options that several commands have are shown with their short form once, in a table above.
    assert documented | {"-o"} == existing | {"-o"}
    assert named_options(text) <= existing | named_options(first) | ROOT_OPTIONS | {"--data"}


def test_command_lines_use_commands_and_options_that_exist() -> None:
    lines = list(command_lines())
    assert len(lines) > 10
    for words in lines:
        command = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        assert command in COMMANDS, words
        given = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert given <= options_of(command) | ROOT_OPTIONS, words


def test_every_exit_code_is_documented() -> None:
    documented = {int(code) for cell in first_cells(section("Exit codes")) for code in cell.split(", ")}

    def codes(error: type[QglowError]) -> set[int]:
        return {error.exit_code}.union(*(codes(child) for child in error.__subclasses__()))

    assert documented == {0, *codes(QglowError), INTERRUPTED, BROKEN_PIPE, TERMINATED}


def test_operators_are_those_that_can_be_imported() -> None:
    text = section("Supported operators")
    described = {name for cell in first_cells(text) for name in cell.split(", ")}
    assert described <= set(supported_operators())
    listed = re.search(r"operators of opset \d+ and later: (.*?)\. .* onnxruntime's own: (.*)\.", text)
    assert listed and listed[1].split(", ") == supported_operators(), "scripts/list_operators.py writes it"
    assert listed[2].split(", ") == contributed_operators()


def test_recipe_table_names_every_key_and_every_choice() -> None:
    text = section("Recipe")
    keys = {f"preprocessing.{field.name}" for field in dataclasses.fields(Preprocessing)}
    keys |= {f"data.{field.name}" for field in dataclasses.fields(DataMapping)}
    keys |= {field.name for field in dataclasses.fields(Recipe)} - {"preprocessing", "data"}
    assert {cell.strip("`") for cell in first_cells(text)} == keys
    schemas = tuple(schema.name for schema in Schema)
    for choice in (*schemas, *CALIBRATIONS, *INTERPOLATIONS):
        assert f"`{choice}" in text
    default = Recipe()
    assert f"| `schema` | `{default.schema}`," in text
    assert f"| `calibration` | `{default.calibration}`," in text


def test_package_table_names_every_package() -> None:
    cells = first_cells(section("Architecture"))
    named = {name.strip("`") for cell in cells for name in cell.split(", ")}
    present = {path.parent.name for path in (REPOSITORY / "qglow").glob("*/__init__.py")}
    assert named == present


def test_recipe_snippets_load() -> None:
    others = blocks(section("Accuracy in CI"), "yaml")
    found = [block for block in blocks(TEXT, "yaml") if block not in others]
    assert len(found) > 1
    for snippet in found:
        parse_recipe(snippet)


def test_baseline_snippet_loads_and_the_job_is_yaml(tmp_path: Path) -> None:
    baseline, job = blocks(section("Accuracy in CI"), "yaml")
    path = tmp_path / "accuracy.yaml"
    path.write_text(baseline)
    assert [entry.name for entry in load_baseline(path)] == ["mymodel"]
    steps = yaml.safe_load(job)["jobs"]["int8"]["steps"]
    assert any("qglow check --baseline" in step.get("run", "") for step in steps)


def test_links_lead_somewhere() -> None:
    titles = re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("http"):
            assert (REPOSITORY / target).exists(), target


def test_scripts_exist_and_have_the_options_that_are_named() -> None:
    named = re.findall(r"`(?:bash|python) (scripts/\S+?)((?: --[a-z-]+)*)`", TEXT)
    assert named
    frame = (REPOSITORY / "scripts" / "measuring.py").read_text(encoding="utf-8")
    for script, options in named:
        source = (REPOSITORY / script).read_text(encoding="utf-8")
        if "from measuring import" in source:
            source += frame
        for option in options.split():
            assert f'"{option}"' in source, f"{script} {option}"


def test_measured_tables_have_their_places() -> None:
    begins = re.findall(r"<!-- begin: ([\w ]+) -->", TEXT)
    assert begins == re.findall(r"<!-- end: ([\w ]+) -->", TEXT)
    writes = re.compile(r'(?:update_readme|return run)\("([\w ]+)"')
    scripts = (REPOSITORY / "scripts").glob("*.py")
    written = {name for path in scripts for name in writes.findall(path.read_text(encoding="utf-8"))}
    assert set(begins) == written


def test_environment_variables_are_those_that_are_read() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("qglow", "tests", "scripts")
        for path in (REPOSITORY / folder).rglob("*.py")
    )
    read = set(re.findall(r'"(QGLOW_[A-Z]+)"', source))
    assert {cell.strip("`") for cell in first_cells(section("Install")) if "QGLOW" in cell} == read


def test_the_listing_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from qglow.cli.main import main
    from tests.zoo import zoo_path

    assert main(["compile", str(zoo_path("models/mymodel.onnx")), "--dump-ir"]) == 0
    assert blocks(section("qglow inspect"), "text") == [capsys.readouterr().out]
