"""Hostile files through every command: the rules hold, and the fuzzer keeps its promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.__main__ import table
from tests.fuzz.cases import make_case
from tests.fuzz.judge import Answer, broken_folders, broken_rules, digests
from tests.fuzz.runner import Result
from tests.fuzz.workbench import Workbench, make_workbench
from tests.zoo import REPOSITORY

CASES = 700
MB = 1 << 20


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QGLOW_CACHE", str(tmp_path_factory.mktemp("cache")))
        return make_workbench(tmp_path_factory.mktemp("bench"))


@pytest.mark.slow
def test_hostile_files() -> None:
    words = ["--cases", str(CASES), "--corpus", "--jobs", "2", "--seed", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_and_a_number_are_a_case(bench: Workbench, tmp_path: Path) -> None:
    for number in range(30):
        lines, files = [], []
        folder = tmp_path / "in"
        for _ in range(2):
            folder.mkdir()
            lines.append(make_case(bench, 3, number, folder).lines)
            files.append({name: digest for name, digest in digests(folder).items() if name != "data.npz"})
            folder.rename(tmp_path / f"{number}-{len(lines)}")
        assert lines[0] == lines[1] and files[0] == files[1]


GOOD = "qglow: error: model.onnx: the graph has a cycle\n"


@pytest.mark.parametrize(
    ("code", "out", "err", "grown", "said"),
    [
        (4, "", GOOD, 0, None),
        (0, "fine\n", "note: well\n", 0, None),
        (70, "", GOOD, 0, "exit code 70"),
        (4, "", "Traceback (most recent call last)\n" + GOOD, 0, "traceback"),
        (4, "", "", 0, "0 error lines"),
        (4, "", GOOD + GOOD, 0, "2 error lines"),
        (0, "", GOOD, 0, "with exit code 0"),
        (4, "", "qglow: error: \n", 0, "says nothing"),
        (4, "", "qglow: error: " + "x" * 3000, 0, "characters"),
        (4, "", "qglow: error: \x1b[31m of a name", 0, "control characters"),
        (0, "name \u202e\n", "", 0, "control characters"),
        (0, "", "", 2000 * MB, "are allowed"),
    ],
)
def test_rules_of_an_answer(code: int, out: str, err: str, grown: int, said: str | None) -> None:
    found = list(broken_rules(Answer(("run",), code, out, err, grown), 512 * MB))
    assert (not found) if said is None else any(said in rule for rule in found)


@pytest.mark.parametrize(
    ("code", "wrote", "left", "said"),
    [
        (0, ["made.npz"], [], None),
        (4, [], [], None),
        (0, [], [], "without writing"),
        (4, ["made.npz"], [], "and refused"),
        (0, ["made.npz", ".made.npz.tmp"], [], "unfinished"),
        (4, [], ["tmp123"], "temporary"),
    ],
)
def test_rules_of_folders(
    tmp_path: Path, code: int, wrote: list[str], left: list[str], said: str | None
) -> None:
    for folder, names in (("out", wrote), ("tmp", left)):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    answer = Answer(("run", "m", "-o", "made.npz"), code, "", GOOD, 0)
    found = list(broken_folders(answer, frozenset(), tmp_path / "out", tmp_path / "tmp"))
    assert (not found) if said is None else any(said in rule for rule in found)


def test_counts_by_command_and_exit_code() -> None:
    results = [Result(0, "model", [("run", 4)]), Result(1, "model", [("profile", 0), ("quantize", 4)])]
    assert table(results).splitlines() == [
        "| command | exit 0 | exit 4 | all |",
        "| --- | ---: | ---: | ---: |",
        "| profile | 1 | 0 | 1 |",
        "| quantize | 0 | 1 | 1 |",
        "| run | 0 | 1 | 1 |",
        "| all | 1 | 2 | 3 |",
    ]
