"""Running cases in a child of this process: crashes, hangs and greed end the child, and the parent goes on.

A child runs many cases, in the process, for speed; some run as `python -m qglow.cli.main`, as a user does. A
finding counts where the case repeats it alone in a new child. The parent must have no threads of its own.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from qglow.cli.main import main
from tests.fuzz.cases import Case, make_case
from tests.fuzz.judge import Answer, broken_folders, broken_rules, digests, names_below
from tests.fuzz.workbench import Workbench

BUDGET = 512 << 20
"""Bytes that QGLOW_MAX_MEMORY allows to every command."""

SECONDS = 10
"""Of processor time that a command may take, and WALL of waiting."""
WALL = 60
ADDRESSES = 3 << 30
"""Bytes of addresses above those of the process at its start: a runaway ends here, not the machine."""

BATCH = 200
APART = 400
"""One case in so many runs in a process of its own."""


@dataclass(frozen=True)
class Result:
    """One case: the exit code of every command that ran, and the rules that were broken."""

    number: int
    kind: str
    commands: list[tuple[str, int]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def run_cases(bench: Workbench, seed: int, numbers: Sequence[int]) -> Iterator[Result]:
    """Results of cases in their order."""
    left = list(numbers)
    while left:
        for result in _batch(bench, seed, left[:BATCH]):
            left.remove(result.number)
            if result.broken:
                alone = list(_batch(bench, seed, [result.number]))
                yield alone[0] if alone[0].broken else _only_together(result)
            else:
                yield result


def _only_together(result: Result) -> Result:
    return Result(
        result.number,
        result.kind,
        result.commands,
        [f"{rule} (not alone, only after other cases)" for rule in result.broken],
    )


def _batch(bench: Workbench, seed: int, numbers: Sequence[int]) -> list[Result]:
    """Results up to the first case that ended the child, that case included."""
    with tempfile.TemporaryDirectory(prefix="qglow-fuzz-") as name:
        folder = Path(name)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _in_child(bench, seed, numbers, folder)
                status = 0
            except BaseException:
                import traceback

                (folder / "harness.txt").write_text(traceback.format_exc())
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        results = [Result(**json.loads(line)) for line in _lines(folder / "results")]
        if status != 0:
            if (folder / "harness.txt").exists():
                raise RuntimeError((folder / "harness.txt").read_text())
            number = numbers[len(results)]
            lines = _lines(folder / "lines")
            what, words = _ending(status), (lines[-1] if lines else "no command")
            results.append(Result(number, "ended", [], [f"{what}: {words}"]))
        return results


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _ending(status: int) -> str:
    number = os.waitstatus_to_exitcode(status)
    if -number in (signal.SIGPROF, signal.SIGXCPU):
        return f"takes more than {SECONDS} s of the processor"
    if -number == signal.SIGALRM:
        return f"hangs for more than {WALL} s"
    return f"ends the process by {signal.Signals(-number).name}" if number < 0 else f"leaves with {number}"


def _in_child(bench: Workbench, seed: int, numbers: Sequence[int], folder: Path) -> None:
    gc.enable()
    os.close(0)
    size = _status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (size + ADDRESSES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with (folder / "results").open("w") as results, (folder / "lines").open("w") as lines:
        for number in numbers:
            place = folder / "case"
            for part in ("in", "out", "tmp"):
                (place / part).mkdir(parents=True)
            case = make_case(bench, seed, number, place / "in")
            result = judge_case(
                case, place, bench.folder / "cache", lines, apart=number > 0 and number % APART == 7
            )
            results.write(json.dumps(asdict(result)) + "\n")
            results.flush()
            shutil.rmtree(place)


def judge_case(case: Case, place: Path, cache: Path, log: object, apart: bool) -> Result:
    """Run the commands of a case until one fails; the files lie below `place`/in."""
    inputs, out, temporary = place / "in", place / "out", place / "tmp"
    environment = {
        "QGLOW_CACHE": str(cache),
        "QGLOW_MAX_MEMORY": str(BUDGET),
        "QGLOW_THREADS": "1",
        "TMPDIR": str(temporary),
        "COLUMNS": "200",
    }
    os.environ.update(environment)
    tempfile.tempdir = None
    known = digests(inputs)
    os.chdir(out)
    commands, broken = [], []
    for words in case.lines:
        log.write(" ".join(map(ascii, words)) + "\n")  # type: ignore[attr-defined]
        log.flush()  # type: ignore[attr-defined]
        before = names_below(out)
        answer = _apart(words, place) if apart else _here(words, place)
        commands.append((_command(words), answer.code))
        found = [*broken_rules(answer, BUDGET), *broken_folders(answer, before, out, temporary)]
        changed = {n for n, digest in digests(inputs).items() if known.get(n) != digest} - case.writes
        if changed:
            found.append(f"changed its inputs: {sorted(changed)[:3]}")
        if case.wanted is not None and answer.code != case.wanted:
            found.append(f"exit code {answer.code}, not {case.wanted}: {answer.err[-300:]}")
        broken += [f"{rule} <- {' '.join(map(ascii, words))}" for rule in found]
        if answer.code != 0 or found:
            break
    return Result(case.number, case.kind, commands, broken)


def _command(words: Sequence[str]) -> str:
    two = " ".join(words[:2])
    return (
        two if two in ("profile merge", "profile drift", "profile sufficiency", "recipe show") else words[0]
    )


def _here(words: tuple[str, ...], place: Path) -> Answer:
    """In this process, its output in files, watched by the clock."""
    paths = [place / "stdout", place / "stderr"]
    saved = [os.dup(1), os.dup(2)]
    for number, path in zip((1, 2), paths, strict=True):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    Path("/proc/self/clear_refs").write_text("5")
    start = _status("VmRSS")
    signal.alarm(WALL)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        code = main(list(words))
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        for number, handle in zip((1, 2), saved, strict=True):
            os.dup2(handle, number)
            os.close(handle)
    grown = _status("VmHWM") - start
    out, err = (path.read_bytes().decode(errors="surrogateescape") for path in paths)
    return Answer(words, code, out, err, grown)


def _apart(words: tuple[str, ...], place: Path) -> Answer:
    """As a user runs it."""
    if any("\0" in word for word in words):
        return _here(words, place)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OPENBLAS_NUM_THREADS": "1"}
    limit = (SECONDS + 5, SECONDS + 5)
    done = subprocess.run(
        [sys.executable, "-m", "qglow.cli.main", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment,
        timeout=WALL * 2,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
    )
    out, err = (part.decode(errors="surrogateescape") for part in (done.stdout, done.stderr))
    return Answer(words, done.returncode, out, err, 0)


def _status(key: str) -> int:
    """Bytes that the kernel counts for this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    return 0
