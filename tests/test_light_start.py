"""What starting costs: names are resolved when they are used, libraries imported where they are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import qglow.api

HEAVY = {"numpy", "onnx", "onnxruntime", "jinja2", "junitparser", "llvmlite", "yaml", "rich"}
REPORT_LOADED = "import sys; print(*sorted(sys.modules), file=sys.stderr)"


def loaded_by(*arguments: str) -> set[str]:
    """The modules in a fresh interpreter after it ran a program that prints them to standard error."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


def test_import_loads_no_library() -> None:
    loaded = loaded_by("-c", f"import qglow; {REPORT_LOADED}")
    assert "qglow.core.errors" in loaded
    assert not loaded & (HEAVY | {"typer"})
    assert "qglow.api" not in loaded


@pytest.mark.parametrize("words", [["--help"], ["--version"]], ids=" ".join)
def test_command_line_starts_without_libraries_but_its_own(words: list[str]) -> None:
    loaded = loaded_by("-c", f"from qglow.cli.main import main; main({words!r}); {REPORT_LOADED}")
    assert not loaded & HEAVY


def test_use_of_a_name_loads_what_it_needs() -> None:
    loaded = loaded_by("-c", f"import qglow; qglow.Recipe; {REPORT_LOADED}")
    assert "qglow.recipe.schema" in loaded
    assert not loaded & {"onnx", "onnxruntime", "llvmlite"}


def test_names_alone_load_no_library_of_files_and_reports() -> None:
    """onnx is imported where a model is read, onnxruntime where one runs, jinja2 where one draws."""
    every = "import qglow; [getattr(qglow, name) for name in qglow.__all__]"
    loaded = loaded_by("-c", f"{every}; {REPORT_LOADED}")
    assert "qglow.api.evaluation" in loaded
    assert not loaded & {"onnx", "onnxruntime", "jinja2", "junitparser", "rich", "typer"}


def test_programs_are_loaded_and_compiled_without_graphs() -> None:
    """A program has all that its code is made of: no operator and no pass of graphs is imported for it."""
    chosen = (
        "import qglow, qglow.targets.registry; qglow.load; qglow.targets.registry.select_target('generic')"
    )
    rooms = {name.split(".")[1] for name in loaded_by("-c", f"{chosen}; {REPORT_LOADED}") if "qglow." in name}
    assert {"codegen", "kernels", "runtime", "targets"} <= rooms
    assert not rooms & {"graph", "passes", "importer", "exporter", "profiling", "quantization"}
    assert not rooms & {"bundles", "emulation"}


def test_names_are_listed_before_they_are_used() -> None:
    listing = "import qglow; assert set(qglow.__all__) <= set(dir(qglow)), dir(qglow)"
    loaded = loaded_by("-c", f"{listing}; {REPORT_LOADED}")
    assert not loaded & HEAVY


def test_unknown_name_is_an_attribute_error_that_names_it() -> None:
    for module in (qglow, qglow.api):
        with pytest.raises(AttributeError, match=rf"{module.__name__}.*no_such_name"):
            module.no_such_name  # noqa: B018


def test_type_checkers_see_what_is_resolved() -> None:
    """The imports for type checkers and the table of names at run time say the same."""
    tree = ast.parse(Path(qglow.api.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "typing.TYPE_CHECKING"
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.name: node.module for node in imports for alias in node.names}
    resolved = {name: module for module, names in qglow.api._NAMES_OF.items() for name in names}
    assert seen == resolved
    assert set(resolved) == set(qglow.api.__all__)


def test_package_runs_as_the_command_line() -> None:
    command = [sys.executable, "-m", "qglow"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"qglow {qglow.__version__}\n"
    refused = subprocess.run([*command, "inspect", "no such file.onnx"], capture_output=True, text=True)
    assert refused.returncode == 4
    assert "no such file.onnx" in refused.stderr
