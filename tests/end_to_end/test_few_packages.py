"""Running an int8 program where numpy and llvmlite are the only packages besides qglow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qglow
from qglow.core.types import Array
from tests.end_to_end.conftest import TEST_DATA

ALLOWED = ("qglow", "numpy", "llvmlite")

# Python imports a module of this name as it starts, in worker processes too.
SITE_CUSTOMIZE = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        if package not in sys.stdlib_module_names and package not in {ALLOWED!r}:
            raise ModuleNotFoundError(f"{{name}} is blocked", name=name)
        return None

sys.meta_path.insert(0, Blocker())
"""

PROGRAM = """
import sys
import numpy as np
import qglow

path, trust, data, results = sys.argv[1:]
program = qglow.load(path, trust=trust == "trust")
images = np.load(data)["input"]
[name] = program.inputs
outputs = [program({name: images[i : i + 1]}) for i in range(20)]
np.savez(results, **{key: np.concatenate([each[key] for each in outputs]) for key in outputs[0]})
"""

IMPORT_ONNX = """
try:
    import onnx
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables of a process that can import nothing else, with an empty cache."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE_CUSTOMIZE)
    return {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "site"),
        "QGLOW_CACHE": str(tmp_path / "cache"),
    }


def run(environment: dict[str, str], program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def expected(quantized: Path) -> dict[str, Array]:
    """Outputs of the program for the first images, in this process."""
    program = qglow.load(quantized / "model.qglow")
    images = np.load(TEST_DATA)["input"]
    outputs = [program({"input": images[i : i + 1]}) for i in range(20)]
    return {name: np.concatenate([each[name] for each in outputs]) for name in outputs[0]}


def test_other_packages_are_blocked(environment: dict[str, str]) -> None:
    assert run(environment, IMPORT_ONNX) == "onnx is blocked\n"


@pytest.mark.parametrize("trust", ["trust", "compile"])
def test_program_runs_with_numpy_and_llvmlite_alone(
    trust: str, environment: dict[str, str], quantized: Path, expected: dict[str, Array], tmp_path: Path
) -> None:
    """From the code in the file, or compiled into an empty cache and then taken from it."""
    cache = tmp_path / "cache" / "programs"
    for results in (tmp_path / "first.npz", tmp_path / "second.npz"):
        run(environment, PROGRAM, quantized / "model.qglow", trust, TEST_DATA, results)
        assert cache.exists() == (trust == "compile")
        found = np.load(results)
        assert set(found.files) == set(expected)
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes(), name
