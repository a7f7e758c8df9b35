"""The example package with an operator, a target and a data source, installed and used as its users do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zoo import REPOSITORY

pytestmark = pytest.mark.slow

DIGITS = REPOSITORY / "calib_data" / "digits.onnx"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs Python where the package is installed, in a folder of its own."""
    source, folder = tmp_path_factory.mktemp("source") / "plugin", tmp_path_factory.mktemp("plugin")
    shutil.copytree(REPOSITORY / "docs" / "examples" / "plugin", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, source]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(folder), str(REPOSITORY))),
        "QGLOW_CACHE": str(folder / "cache"),
    }

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, words)]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    return run


def test_operator_is_quantized_and_compiled(run: Run) -> None:
    done = run("-m", "qglow_example.softsign")
    assert done.returncode == 0, done.stderr
    assert "3 nodes in int8" in done.stdout


def test_operator_of_a_model_is_found_by_its_entry_point(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "softsign.onnx"
    write = "import sys, pathlib, qglow_example.softsign as s; s.example(pathlib.Path(sys.argv[1]))"
    assert run("-c", write, model).returncode == 0
    done = run("-m", "qglow", "inspect", model)
    assert done.returncode == 0, done.stderr
    assert "Softsign" in done.stdout


def test_target_is_listed_and_writes_a_program(run: Run, tmp_path: Path) -> None:
    assert "listing" in run("-m", "qglow", "targets").stdout
    done = run("-m", "qglow", "compile", DIGITS, "--isa", "listing", "-o", tmp_path / "listing")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "listing" / "program.txt").read_text().startswith("function ")


def test_data_source_gives_samples(run: Run, tmp_path: Path) -> None:
    profile = tmp_path / "waves.yaml"
    done = run("-m", "qglow", "profile", DIGITS, "--data", "waves:20", "--samples", 12, "-o", profile)
    assert done.returncode == 0, done.stderr
    assert "samples: 12" in profile.read_text()


@pytest.mark.parametrize("rest, reason", [("many", "invalid literal"), ("0", "at least 1")])
def test_data_source_that_cannot_be_opened_is_one_line(run: Run, rest: str, reason: str) -> None:
    done = run("-m", "qglow", "profile", DIGITS, "--data", f"waves:{rest}")
    assert done.returncode == 4
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert line.startswith("qglow: error: data source 'waves'") and reason in line
