"""The documentation is true and complete: what it names exists, and what exists it names."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from pathlib import Path

import pytest

import qglow
from qglow.baseline.file import load_baseline
from qglow.cli.failure import BROKEN_PIPE, INTERRUPTED, TERMINATED
from qglow.core.errors import QglowError
from qglow.core.options import options_of as options_of_dataclass
from qglow.core.version import __version__
from qglow.graph.operator import OPERATORS
from qglow.importer.rules import contributed_operators, supported_operators
from qglow.instructions.operation import OPERATIONS
from qglow.numerics.schema import Schema
from qglow.recipe import DataMapping, Preprocessing, Recipe, parse_recipe
from qglow.recipe.data import INTERPOLATIONS
from scripts.benchmarks.catalogue import ENTRIES
from tests.documents import (
    DOCS,
    PAGES,
    README,
    blocks,
    code_spans,
    command_lines,
    expanded,
    first_cells,
    name_of,
    named_options,
    reference,
    section,
    table_rows,
    text_of,
)
from tests.zoo import REPOSITORY

COMMANDS = reference().commands()
CALIBRATIONS = ("minmax", "kl", "mse", "percentile:P")
ROOT_OPTIONS = {"--debug", "--version", "--help", "-h"}
CHANGE_GROUPS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
README_BYTES = 12 * 1024
MEASURED = [
    page
    for page in PAGES
    if page.name != "index.md"
    and (page.parent == DOCS / "benchmarks" or (page.parent.name == "decisions" and "\n|" in text_of(page)))
]
EVERYTHING = "\n".join(text_of(page) for page in PAGES)


def options_of(command: str) -> set[str]:
    """Every name of every option of a command, without help."""
    params = COMMANDS[command].params
    names = {name for p in params for name in (*p.opts, *p.secondary_opts) if name.startswith("-")}
    return names - {"--help", "-h"}


# The commands


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    titles = re.findall(r"^## qglow (.+)$", text_of(DOCS / "reference" / "commands.md"), re.MULTILINE)
    assert sorted(titles) == sorted(COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_section_of_a_command_names_all_its_options_and_no_others(command: str) -> None:
    text = section(expanded("commands"), f"qglow {command}")
    listed = named_options([cell for cell in first_cells(text) if cell.startswith("`")])
    assert listed == options_of(command)
    assert named_options(code_spans(text)) <= options_of(command) | ROOT_OPTIONS
    assert f"](#qglow-{command.replace(' ', '-')})" in expanded("commands").split("## qglow", 1)[0]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_command_lines_use_commands_and_options_that_exist(page: Path) -> None:
    for words in command_lines(text_of(page)):
        if words[0].startswith("-"):
            assert set(words) <= ROOT_OPTIONS | {"..."}, words
            continue
        command = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]
        assert command in COMMANDS or command == "COMMAND", words
        given = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)}
        assert given <= (options_of(command) if command in COMMANDS else set()) | ROOT_OPTIONS, words


def test_many_command_lines_are_looked_at() -> None:
    assert len(list(command_lines(EVERYTHING))) > 60


def test_every_exit_code_is_documented() -> None:
    text = expanded("exit-codes")
    documented = {int(code) for cell in first_cells(text) for code in cell.split(", ")}

    def codes(error: type[QglowError]) -> set[int]:
        return {error.exit_code}.union(*(codes(child) for child in error.__subclasses__()))

    assert documented == {0, *codes(QglowError), INTERRUPTED, BROKEN_PIPE, TERMINATED}


# Recipe, operators, instructions, Python


def test_recipe_tables_name_every_key_and_every_choice() -> None:
    text = text_of(DOCS / "reference" / "recipe.md")
    keys = {f"preprocessing.{field.name}" for field in dataclasses.fields(Preprocessing)}
    keys |= {f"data.{field.name}" for field in dataclasses.fields(DataMapping)}
    keys |= {field.name for field in dataclasses.fields(Recipe)} - {"preprocessing", "data"}
    tables = section(text, "Preprocessing and data") + section(text, "Quantization").split("###")[0]
    assert {cell.strip("`") for cell in first_cells(tables)} == keys
    schemas = tuple(schema.name for schema in Schema)
    for choice in (*schemas, *CALIBRATIONS, *INTERPOLATIONS):
        assert f"`{choice}" in text
    default = Recipe()
    assert f"| `schema` | `{default.schema}`," in text
    assert f"| `calibration` | `{default.calibration.to_text()}`," in text
    rows = table_rows(section(text, "Quantization").split("###")[0])
    for declared in options_of_dataclass(Recipe):
        values = rows.get(f"`{declared.key}`", {}).get("values (default first)", "")
        assert declared.option.nested or all(f"`{choice}`" in values for choice in declared.option.choices)


def test_yaml_snippets_load(tmp_path: Path) -> None:
    found = [block for page in PAGES for block in blocks(text_of(page), "yaml")]
    baselines = [block for block in found if block.startswith("models:")]
    jobs = [block for block in found if "\njobs:" in block]
    hooks = [block for block in found if block.startswith("repos:")]
    recipes = [block for block in found if block not in baselines + jobs + hooks]
    assert len(baselines) > 1 and len(jobs) == 1 and len(recipes) > 3
    for snippet in recipes:
        parse_recipe(snippet)
    path = tmp_path / "accuracy.yaml"
    for snippet in baselines:
        path.write_text(snippet)
        assert [entry.name for entry in load_baseline(path)] == ["mymodel"]


def test_operators_are_those_that_can_be_imported() -> None:
    text = expanded("operators")
    described = {name for cell in first_cells(section(text, "What becomes of them in int8"))
                 for name in cell.split(", ")}  # fmt: skip
    assert described <= set(supported_operators())
    listed = re.search(r"operators of opset \d+ and later: (.*?)\. .* onnxruntime's own: (.*)\.", text)
    assert listed and listed[1].split(", ") == supported_operators(), "the benchmark operators writes it"
    assert listed[2].split(", ") == contributed_operators()


def test_generated_pages_name_everything_that_there_is() -> None:
    graph = re.findall(r"^### (.+)$", expanded("graph-ir"), re.MULTILINE)
    assert set(OPERATORS) <= set(graph)
    instructions = re.findall(r"^### (.+)$", expanded("instruction-ir"), re.MULTILINE)
    assert set(OPERATIONS) <= set(instructions)
    named = set(re.findall(r"^      heading: (.+)$", expanded("python"), re.MULTILINE))
    wanted = {
        n for n in qglow.__all__ if callable(getattr(qglow, n)) and hasattr(getattr(qglow, n), "__name__")
    }
    assert wanted - {"Array", "Data", "Progress"} <= named


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_markers_are_replaced(page: Path) -> None:
    assert "<!-- generated:" not in reference().expand(text_of(page))


def test_code_of_the_guide_to_operators_is_that_of_the_package() -> None:
    text = text_of(DOCS / "how-to" / "add-an-operator.md")
    shown = [textwrap.dedent(code) for code in re.findall(r"^ +```python\n(.*?)^ +```$", text, re.M | re.S)]
    named = re.findall(r"in `(qglow/[\w/]+\.py)`", text)
    source = "\n".join((REPOSITORY / name).read_text(encoding="utf-8") for name in named)
    assert len(shown) == 3
    for code in shown:
        assert code.strip() in source


def test_package_table_names_every_package() -> None:
    table = reference().expand(text_of(DOCS / "explanation" / "architecture.md"))
    present = {path.parent.name for path in (REPOSITORY / "qglow").glob("*/__init__.py")}
    assert present <= {cell.strip("`") for cell in first_cells(table)}


def test_environment_variables_are_those_that_are_read() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("qglow", "tests", "scripts")
        for path in (REPOSITORY / folder).rglob("*.py")
    )
    read = set(re.findall(r'"(QGLOW_(?:MAX_)?[A-Z]+)"', source))
    cells = first_cells(section(text_of(DOCS / "reference" / "environment.md"), "Environment variables"))
    assert {cell.strip("`") for cell in cells} == read


def test_the_listing_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from qglow.cli.main import main
    from tests.zoo import zoo_path

    assert main(["compile", str(zoo_path("models/mymodel.onnx")), "--dump-ir"]) == 0
    shown = blocks(text_of(DOCS / "reference" / "instruction-ir.md"), "text")
    assert shown == [capsys.readouterr().out]


# Measurements


def test_scripts_exist() -> None:
    named = re.findall(r"`bash (scripts/\S+?)[` ]", EVERYTHING)
    named += [
        f"{name.replace('.', '/')}.py" for name in re.findall(r"python -m (scripts\.\w+)[` ]", EVERYTHING)
    ]
    assert named
    for script in named:
        path = REPOSITORY / script
        assert path.exists() or (path.with_suffix("") / "__main__.py").exists(), script


def test_benchmarks_have_the_options_that_are_named() -> None:
    named = re.findall(r"python -m scripts\.benchmarks ([a-z]\S*?)((?: [-\w.]+)*)[`\n]", EVERYTHING)
    assert len(named) > 10
    known = {entry.name: entry for entry in ENTRIES}
    for name, options in named:
        known[name].load().parser(name).parse_args(options.replace("FOLDER", "/tmp").split())


def test_measured_tables_have_their_places() -> None:
    begins = re.findall(r"<!-- begin: ([\w ]+) -->", EVERYTHING)
    assert begins == re.findall(r"<!-- end: ([\w ]+) -->", EVERYTHING)
    assert sorted(begins) == sorted({entry.load().table for entry in ENTRIES} - {None})


@pytest.mark.parametrize("page", MEASURED, ids=name_of)
def test_every_measured_table_says_where_when_and_how(page: Path) -> None:
    parts = re.split(r"^#+ .+$", text_of(page), flags=re.MULTILINE)
    tables = [part.split("\n|", 1)[0] for part in parts if "\n|" in part]
    assert tables
    for before in tables:
        assert re.search(r"\*\*Machine:\*\* .+(AMD|Intel|Arm)", before), page
        assert re.search(r"\*\*Commit:\*\* .*`[0-9a-f]{7}`", before), page
        assert "**Command:** " in before, page


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        (
            "accuracy",
            {"float": "float top-1", "qglow int8": "balanced", "ORT int8": "ORT minmax", "NNCF int8": "NNCF"},
        ),
        (
            "speed",
            {
                "ORT int8": "ORT int8, QDQ of qglow",
                "OpenVINO int8": "OpenVINO int8, QDQ of qglow",
                **{title: title for title in ("qglow int8", "qglow float32", "ORT float32")},
            },
        ),
    ],
)
def test_figures_of_the_readme_are_those_of_the_benchmarks(name: str, columns: dict[str, str]) -> None:
    shown = table_rows(text_of(README).split(f"<!-- figures: {name} -->\n")[1].split("\n\n")[0])
    page = text_of(DOCS / "benchmarks" / f"{name}.md")
    measured = table_rows(page.split(f"<!-- begin: {name} -->\n")[1].split("\n\n")[0])
    assert len(shown) == 6
    commit = re.search(r"\*\*Commit:\*\* (`[0-9a-f]{7}`)", page)
    assert (
        commit and commit[1] in text_of(README) and f"python -m scripts.benchmarks {name}" in text_of(README)
    )
    for model, row in shown.items():
        for title, source in columns.items():
            figures = measured[model][source].split(" / ")
            assert row[title] == " / ".join([figures[0], *figures[2:]]), (model, title)


# Files and links


def test_readme_is_short() -> None:
    assert len(text_of(README).encode()) <= README_BYTES


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_the_top_level_lead_somewhere(name: str) -> None:
    text = (REPOSITORY / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        assert (REPOSITORY / path).exists(), target
        linked = (REPOSITORY / path).read_text(encoding="utf-8") if path.endswith(".md") else text
        assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("page", PAGES[1:], ids=name_of)
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert path.startswith("http") or linked.exists(), target
        if anchor and linked.suffix == ".md" and "## qglow" not in text_of(linked):
            assert anchor in anchors(reference().expand(text_of(linked))), target


def anchors(text: str) -> set[str]:
    """Anchors of a page's titles."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_changelog_keeps_its_format() -> None:
    text = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert titles[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}", title) for title in titles[1:]]
    assert all(released), titles
    assert released[0] and released[0][1] == __version__
    for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        groups = re.findall(r"^### (.+)$", part, re.MULTILINE)
        assert groups == [group for group in CHANGE_GROUPS if group in groups], groups
        bodies = re.split(r"^### .+$", part, flags=re.MULTILINE)[1:]
        assert all(body.strip().startswith("- ") for body in bodies)
