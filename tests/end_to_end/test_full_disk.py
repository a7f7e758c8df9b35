"""A disk that is full: one line that says so, exit code 4, and everything as it was before."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qglow.core import files
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run
from tests.zoo import REPOSITORY

Capture = pytest.CaptureFixture[str]
Words = tuple[object, ...]
BASELINE = "accuracy.yaml"
SMALL_FILES = (1000, 20_000)
"""Bytes after which no file grows: inside the first block, and inside larger files only."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where everything is written. It holds an earlier result under each name, which has to stay."""
    target = tmp_path / "written"
    target.mkdir()
    for name in ("digits.onnx", "calib.npz", "test.npz", BASELINE):
        shutil.copy(REPOSITORY / "calib_data" / name, target / name)
    for name in ("profile.yaml", "model.qglow", "outputs.npz", "timings.json", "junit.xml", "table.md"):
        (target / name).write_text("earlier")
    return target


def commands(folder: Path, profile: Path, quantized: Path) -> dict[str, Words]:
    """Every command that writes, with all that it can write."""
    few = ("--data", TEST_DATA, "--samples", 4)
    check = ("check", "--baseline", folder / BASELINE, "--entry", "digits", "--update")
    return {
        "profile": ("profile", MODEL, "--data", CALIBRATION, "--samples", 4, "-o", folder / "profile.yaml"),
        "merge": ("profile", "merge", profile, profile, "-o", folder / "profile.yaml"),
        "quantize": ("quantize", "--profile", profile, "--no-repair", "-o", folder / "out"),
        "compile": ("compile", MODEL, "-o", folder / "model.qglow"),
        "compare": ("compare", quantized, *few, "-o", folder / "reports"),
        "run": ("run", quantized, *few, "-o", folder / "outputs.npz"),
        "bench": ("bench", quantized, "--alternations", 1, "-o", folder / "timings.json"),
        "check": (*check, "--junit", folder / "junit.xml", "--markdown", folder / "table.md"),
    }


FIRST = [(command, 0) for command in commands(Path(), Path(), Path())]
LATER = [("quantize", 1), ("quantize", 4), ("quantize", 9), ("compare", 1), ("check", 1)]
"""Commands, and which of their files, counted from 0, is the one that does not fit."""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_told(err: str, folder: Path) -> None:
    [line] = [line for line in err.splitlines() if "error" in line]
    assert line.startswith("qglow: error: cannot write ") and str(folder) in line


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path, int], None]]:
    """Makes a full disk of a folder once so many files in it are finished."""
    finish = os.fsync

    def fill(folder: Path, fitting: int) -> None:
        count = 0

        def fails(descriptor: int) -> None:
            nonlocal count
            if Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(folder):
                count += 1
                if count > fitting:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finish(descriptor)

        monkeypatch.setattr(files.os, "fsync", fails)

    yield fill


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds a file's name in /proc")
@pytest.mark.parametrize(("command", "number"), FIRST + LATER)
def test_a_full_disk_is_told_and_changes_nothing(
    run: Run,
    profile: Path,
    quantized: Path,
    folder: Path,
    fill_disk: Callable[[Path, int], None],
    capsys: Capture,
    command: str,
    number: int,
) -> None:
    before = contents(folder)
    fill_disk(folder, number)
    code = run(*commands(folder, profile, quantized)[command])
    err = capsys.readouterr().err
    assert code == 4, err
    assert_told(err, folder)
    assert "No space left on device" in err
    assert not list(folder.rglob("*.tmp"))
    if number == 0 or command == "quantize":  # the others write files that stand for themselves
        assert contents(folder) == before


def limit_files(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.slow
@pytest.mark.parametrize("size", SMALL_FILES)
@pytest.mark.parametrize("command", ["profile", "quantize", "compile", "compare"])
def test_no_half_file_is_left_when_writing_stops(
    profile: Path, quantized: Path, folder: Path, tmp_path: Path, command: str, size: int
) -> None:
    """The kernel refuses to write on in the middle of a file. The code cache does not fit either."""
    before = contents(folder)
    # Python would leave half a file of bytecode, and every later command would stumble over it.
    own = {"QGLOW_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    words = map(str, commands(folder, profile, quantized)[command])
    done = subprocess.run(
        [sys.executable, "-m", "qglow.cli.main", *words],
        env={**os.environ, **own},
        preexec_fn=limit_files(size),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 4, done.stderr
    assert_told(done.stderr, folder)
    assert contents(folder) == before
    assert not [path for path in tmp_path.rglob("*.tmp") if path.is_file()]
