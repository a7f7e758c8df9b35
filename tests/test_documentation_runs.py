"""The documentation works: its snippets, example scripts and notebooks run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from tests.documents import DOCS, PAGES, name_of, runnable, text_of
from tests.zoo import REPOSITORY

EXAMPLES = DOCS / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
NOTEBOOK_BYTES = 100_000
RESULTS = EXAMPLES / "results.ipynb"
SHOWN_BYTES = 20_000
RUNNING = [page for page in PAGES if runnable(text_of(page))]
COMMANDS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A working directory with the parts of a checkout that snippets use."""
    for name in ("calib_data", "recipes", "docs", "scripts"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return tmp_path


def run(words: list[str], folder: Path) -> str:
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": paths}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_are_snippets_scripts_and_notebooks() -> None:
    assert len(RUNNING) >= 8 and len(SCRIPTS) >= 3 and len(NOTEBOOKS) == 3


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING, ids=name_of)
def test_snippets_of_a_page_run_one_after_the_other(page: Path, checkout: Path) -> None:
    for language, code in runnable(text_of(page)):
        run([*COMMANDS[language], code], checkout)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_example_scripts_run(script: Path, checkout: Path) -> None:
    assert run([sys.executable, str(script)], checkout).strip()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebooks_are_small_and_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < NOTEBOOK_BYTES
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebooks_run(path: Path, checkout: Path) -> None:
    notebook = executed(path, checkout)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    if path == RESULTS:
        check_results(notebook)


def executed(path: Path, folder: Path) -> NotebookNode:
    """The notebook with the outputs of its cells, run in a folder."""
    if path == RESULTS:
        pytest.importorskip("pandas")
        pytest.importorskip("matplotlib")
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()


def check_results(notebook: NotebookNode) -> None:
    """Hold what people see to tables, plots and short lines."""
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert sum("qglow-shown" in page for page in pages) >= 6
    assert all(len(page) < SHOWN_BYTES for page in pages)
    assert sum("image/png" in data for data in shown) == 3
    lines = [data["text/plain"] for data in shown if "qglow-shown" in data.get("text/html", "")]
    assert all("\n" not in line and len(line) < 300 for line in lines), lines
