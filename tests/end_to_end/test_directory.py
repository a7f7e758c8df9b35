"""A quantized directory after it was moved, and after its reports were written anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from qglow.core.files import sha256_hex
from tests.end_to_end.conftest import MODEL, TEST_DATA, Run


@pytest.fixture
def moved(quantized: Path, tmp_path: Path) -> Path:
    target = tmp_path / "else" / "where"
    shutil.copytree(quantized, target)
    return target


def test_a_moved_directory_asks_where_the_model_is(
    run: Run, moved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("compare", moved, "--data", TEST_DATA, "--samples", 4) == 4
    assert "--model" in capsys.readouterr().err
    assert run("compare", moved, "--data", TEST_DATA, "--samples", 4, "--model", MODEL) == 0


def test_another_model_is_not_taken_for_it(
    run: Run, moved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(MODEL.read_bytes() + b"\x00")
    assert run("compare", moved, "--data", TEST_DATA, "--samples", 4, "--model", other) == 4
    assert "has changed" in capsys.readouterr().err


def test_the_model_option_is_for_directories(run: Run, profile: Path) -> None:
    words = ("compare", MODEL, "--profile", profile, "--data", TEST_DATA, "--samples", 4, "--model", MODEL)
    assert run(*words) == 2


def test_the_manifest_is_true_after_reports_were_replaced(run: Run, moved: Path) -> None:
    before = (moved / "report.json").read_bytes()
    words = ("compare", moved, "--data", TEST_DATA, "--samples", 4, "--model", MODEL, "-o", moved)
    assert run(*words) == 0
    assert (moved / "report.json").read_bytes() != before
    files = json.loads((moved / "manifest.json").read_text())["files"]
    assert files == {name: sha256_hex((moved / name).read_bytes()) for name in files}
