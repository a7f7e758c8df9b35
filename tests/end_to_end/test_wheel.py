"""The wheel, built as a release is, installed in a fresh environment and used away from the checkout.

Building needs the package index, for setuptools in pip's isolated environment. Dependencies are those of the
environment that runs the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import qglow
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA
from tests.zoo import REPOSITORY

pytestmark = pytest.mark.slow

# Everything at the top level that a build might pick up by mistake.
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "qglow", "tests", "scripts", "recipes", "calib_data")


@dataclass(frozen=True)
class Installation:
    """A fresh environment with the wheel in it, and an empty folder to work in."""

    environment: Path
    folder: Path

    def run(self, program: str, *arguments: object) -> str:
        """Standard output of a program of the environment, which has to succeed."""
        command = [self.environment / "bin" / program, *map(str, arguments)]
        variables = {**os.environ, "QGLOW_CACHE": str(self.folder / "cache")}
        variables.pop("PYTHONPATH", None)
        done = subprocess.run(command, cwd=self.folder, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the checkout, so that building leaves no files in it."""
    copy, built = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, copy / name)
    pip("wheel", "--no-deps", "--wheel-dir", built, copy)
    [path] = built.iterdir()
    return path


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel in a new environment that sees the packages of this one, but not its qglow."""
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", asked], text=True).strip())
    shared = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(shared)))
    return Installation(environment, tmp_path_factory.mktemp("elsewhere"))


def pip(*arguments: object) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    packaged = {name for name in names if name.startswith("qglow/")}
    expected = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "qglow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packaged == expected
    assert "qglow/py.typed" in packaged
    assert any(name.endswith("report.html.j2") for name in packaged)
    others = {name.partition("/")[0] for name in names - packaged}
    assert others == {f"qglow-{qglow.__version__}.dist-info"}


def test_installed_package_is_the_one_of_the_wheel(installation: Installation) -> None:
    found = installation.run("python", "-c", "import qglow; print(qglow.__file__)")
    assert Path(found.strip()).is_relative_to(installation.environment)
    assert installation.run("qglow", "--version") == f"qglow {qglow.__version__}\n"
    assert installation.run("python", "-m", "qglow", "--help") == installation.run("qglow", "--help")


def test_installed_command_line_takes_the_example_all_the_way(installation: Installation) -> None:
    installation.run("qglow", "profile", MODEL, "--data", CALIBRATION, "-o", "digits.yaml")
    installation.run("qglow", "quantize", "--profile", "digits.yaml", "-o", "digits.quantized")
    folder = installation.folder / "digits.quantized"
    assert {"model.qglow", "model.qdq.onnx", "report.html"} <= {path.name for path in folder.iterdir()}
    said = installation.run("qglow", "compare", "digits.quantized", "--data", TEST_DATA)
    assert "SQNR" in said
    installation.run("qglow", "run", folder / "model.qglow", "--data", TEST_DATA, "-o", "outputs.npz")
    assert (installation.folder / "outputs.npz").exists()
