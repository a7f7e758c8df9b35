"""The example in calib_data/, taken through the command line once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qglow.cli.main import main
from tests.end_to_end.zoo_flow import is_sweep
from tests.zoo import REPOSITORY

MODEL = REPOSITORY / "calib_data" / "digits.onnx"
CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"
TEST_DATA = REPOSITORY / "calib_data" / "test.npz"

Run = Callable[..., int]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of real models that CI leaves out."""
    for item in items:
        given = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        if "name" in given and is_sweep(given["name"], given.get("batch"), given.get("isa")):
            item.add_marker(pytest.mark.sweep)


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs a command line in this process; returns the exit code."""
    return lambda *words: main([str(word) for word in words])


@pytest.fixture(scope="session")
def profile(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile of the example over its calibration data."""
    path = tmp_path_factory.mktemp("profile") / "profile.yaml"
    assert run("profile", MODEL, "--data", CALIBRATION, "-o", path) == 0
    return path


@pytest.fixture(scope="session")
def quantized(run: Run, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quantized directory of the example."""
    path = tmp_path_factory.mktemp("quantized") / "digits"
    assert run("quantize", "--profile", profile, "--no-repair", "--data", TEST_DATA, "-o", path) == 0
    return path
