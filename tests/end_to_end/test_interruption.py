"""Whenever a command is stopped, what stands under a final name is whole."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from qglow.cli.main import main
from qglow.core.files import sha256_hex
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA

pytestmark = pytest.mark.slow


FORKSERVER = multiprocessing.get_context("forkserver")
# Children start with everything imported, so that a moment is one of the command's own work.
FORKSERVER.set_forkserver_preload(["qglow.cli.main"])


def quiet_main(words: Sequence[str]) -> None:
    """A command line whose output nobody reads; ends the process with its exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.exit(main(words))


def start(words: Sequence[object]) -> ForkServerProcess:
    """A command line in a process of its own."""
    process = FORKSERVER.Process(target=quiet_main, args=([str(word) for word in words],))
    process.start()
    return process


def duration(words: Sequence[object]) -> float:
    """Seconds that a command takes when it is left alone."""
    begin = time.monotonic()
    process = start(words)
    process.join(60)
    assert process.exitcode == 0
    return time.monotonic() - begin


def moments(seconds: float, count: int) -> list[float]:
    """Moments of a run: some anywhere, most near its end, where files are written."""
    generator = random.Random(20)
    late = [seconds * generator.uniform(0.6, 1.02) for _ in range(count - count // 4)]
    return [seconds * generator.uniform(0.0, 0.6) for _ in range(count // 4)] + late


def stop_at(words: Sequence[object], moment: float, number: signal.Signals) -> None:
    process = start(words)
    time.sleep(moment)
    assert process.pid is not None
    with suppress(ProcessLookupError):  # it may have ended by itself
        os.kill(process.pid, number)
    process.join(60)


def _default_signals() -> None:
    """Undo what a shell does to processes in the background: they ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def assert_absent_or_equal(folder: Path, reference: Path) -> None:
    """Every file under a final name is one of the reference's, whole; a manifest vouches for all."""
    for path in folder.iterdir() if folder.exists() else ():
        assert path.read_bytes() == (reference / path.name).read_bytes(), path
    manifest = folder / "manifest.json"
    if manifest.exists():
        for name, digest in json.loads(manifest.read_text())["files"].items():
            assert sha256_hex((folder / name).read_bytes()) == digest


def test_killed_profile_leaves_no_half_file(tmp_path: Path) -> None:
    reference = tmp_path / "reference" / "profile.yaml"
    words = ("profile", MODEL, "--data", CALIBRATION, "-o")
    seconds = duration([*words, reference])
    for number, moment in enumerate(moments(seconds, 3)):
        folder = tmp_path / f"run{number}" / "out"
        folder.mkdir(parents=True)
        stop_at([*words, folder / "profile.yaml"], moment, signal.SIGKILL)
        for path in folder.glob("profile.yaml"):
            # The model's path is relative to the profile; both folders are as deep, but for one name.
            expected = reference.read_text().replace('path: "../', 'path: "../../', 1)
            assert path.read_text() == expected


def test_killed_quantize_leaves_no_half_directory(tmp_path: Path, profile: Path) -> None:
    words = ("quantize", "--profile", profile, "--no-repair", "--data", TEST_DATA, "-o")
    reference = tmp_path / "reference"
    seconds = duration([*words, reference])
    for number, moment in enumerate(moments(seconds, 4)):
        folder = tmp_path / f"run{number}"
        stop_at([*words, folder], moment, signal.SIGKILL)
        assert_absent_or_equal(folder, reference)


def test_killed_quantize_over_an_earlier_directory_keeps_the_manifest_true(
    tmp_path: Path, profile: Path
) -> None:
    common = ("quantize", "--profile", profile, "--no-repair", "-o")
    before, after = tmp_path / "before", tmp_path / "after"
    assert duration([*common, before]) and duration([*common, after, "--schema", "symmetric"])
    for moment in moments(duration([*common, tmp_path / "timing"]), 3):
        folder = tmp_path / f"over{moment}"
        subprocess.run(["cp", "-r", before, folder], check=True)
        stop_at([*common, folder, "--schema", "symmetric"], moment, signal.SIGKILL)
        manifest = folder / "manifest.json"
        if manifest.exists():
            for name, digest in json.loads(manifest.read_text())["files"].items():
                assert sha256_hex((folder / name).read_bytes()) == digest
        for path in folder.iterdir():
            assert path.read_bytes() in [(place / path.name).read_bytes() for place in (before, after)]


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [(signal.SIGINT, 130, b"qglow: interrupted"), (signal.SIGTERM, 143, b"qglow: terminated")],
)
def test_interrupted_command_cleans_up_and_says_so(
    tmp_path: Path, number: signal.Signals, code: int, said: bytes
) -> None:
    """A function as data that signals its own process makes the moment certain."""
    (tmp_path / "stopping.py").write_text(
        "import os, signal, numpy\n"
        "def samples():\n"
        "    yield {'input': numpy.zeros((1, 8, 8), numpy.float32)}\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    for _ in range(10**9):\n"
        "        yield {'input': numpy.zeros((1, 8, 8), numpy.float32)}\n"
    )
    output = tmp_path / "out" / "profile.yaml"
    command = ["profile", str(MODEL), "--data", "stopping:samples", "-o", str(output)]
    environment = {**os.environ, "PYTHONPATH": str(MODEL.parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "qglow.cli.main", *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=60,
        preexec_fn=_default_signals,
    )
    assert done.returncode == code
    assert said in done.stderr and b"Traceback" not in done.stderr
    assert not output.parent.exists() or not list(output.parent.iterdir())


def test_terminated_quantize_leaves_no_temporary_files(tmp_path: Path, profile: Path) -> None:
    words = ("quantize", "--profile", profile, "--no-repair", "--data", TEST_DATA, "-o", tmp_path / "out")
    seconds = duration([*words[:-1], tmp_path / "reference"])
    for moment in (0.8 * seconds, 0.9 * seconds):
        stop_at(words, moment, signal.SIGTERM)
        left = {path.name for path in tmp_path.iterdir()}
        assert left <= {"out", "reference"}
        assert_absent_or_equal(tmp_path / "out", tmp_path / "reference")


def test_closed_pipe_is_no_error() -> None:
    words = [sys.executable, "-m", "qglow.cli.main", "inspect", str(MODEL), "--stage", "llvm"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(100)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(60) == 141
    assert b"Traceback" not in errors and b"error" not in errors


def test_quantize_writes_its_directory_though_nobody_reads_its_output(tmp_path: Path, profile: Path) -> None:
    command = [sys.executable, "-m", "qglow.cli.main", "quantize", "--profile", str(profile), "-o"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*command, str(tmp_path / "out")], stdout=writing, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writing)
    assert done.returncode == 141 and b"error" not in done.stderr
    assert (tmp_path / "out" / "manifest.json").is_file()
