"""Run hostile cases, print how the commands answered, and exit with 1 where one broke a rule."""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import qglow
from qglow.cli.main import command_group
from tests.fuzz.corpus import CORPUS
from tests.fuzz.runner import Result, run_cases
from tests.fuzz.workbench import Workbench


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """The options of a campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many cases (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="what the cases are drawn from (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--corpus", action="store_true", help="run all that broke a rule once before")
    parser.add_argument("--case", type=int, action="append", help="run this case alone (repeatable)")
    parser.add_argument(
        "--keep", type=Path, help="write the files of the case into this folder, and run nothing"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--bench", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run a campaign, or a part of one."""
    options = parsed(words)
    numbers = options.case or [
        *(range(-len(CORPUS), 0) if options.corpus else ()),
        *range(options.first, options.first + options.cases),
    ]
    if options.part is not None:
        return _part(options, numbers[options.part :: options.jobs])
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="qglow-fuzz-") as name:
        folder = Path(name)
        bench = make_bench_apart(folder)
        if options.keep is not None:
            return _keep(bench, options)
        results = list(_campaign(options, folder, len(numbers)))
    print(table(results))
    print(f"{len(results)} cases, seed {options.seed}, {time.monotonic() - start:.0f} s")
    broken = [result for result in results if result.broken]
    for result in broken:
        again = f"python -m tests.fuzz --seed {options.seed} --case {result.number}"
        print(f"{again}  [{result.kind}]", *(f"    {rule}" for rule in result.broken), sep="\n")
    print(f"{len(broken)} cases broke a rule" if broken else "no rule was broken")
    return 1 if broken or len(results) != len(numbers) else 0


def make_bench_apart(folder: Path) -> Workbench:
    """Make the valid files in another process, which may have threads."""
    (folder / "cache").mkdir()
    code = (
        "from pathlib import Path; from tests.fuzz.workbench import make_workbench; "
        f"make_workbench(Path({str(folder)!r}))"
    )
    environment = {**os.environ, "QGLOW_CACHE": str(folder / "cache"), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    return Workbench(folder)


def _keep(bench: Workbench, options: argparse.Namespace) -> int:
    from tests.fuzz.cases import make_case

    options.keep.mkdir(parents=True)
    case = make_case(bench, options.seed, options.case[0], options.keep.resolve())
    for line in case.lines:
        print("qglow", *map(ascii, line))
    return 0


def _campaign(options: argparse.Namespace, folder: Path, count: int) -> Iterator[Result]:
    """Results of all parts, each of which runs in a process without threads."""
    words = ["--seed", str(options.seed), "--first", str(options.first), "--cases", str(options.cases)]
    words += ["--corpus"] if options.corpus else []
    for number in options.case or ():
        words += ["--case", str(number)]
    words += ["--jobs", str(options.jobs), "--bench", str(folder)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    parts = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz", *words, "--part", str(part)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for part in range(min(options.jobs, count))
    ]
    for part in parts:
        assert part.stdout is not None
        for line in part.stdout:
            yield Result(**json.loads(line))
        if part.wait() != 0:
            raise SystemExit("a part of the campaign failed")


def _part(options: argparse.Namespace, numbers: list[int]) -> int:
    """Run some cases, and print a line of JSON for each."""
    for module in pkgutil.walk_packages(qglow.__path__, "qglow."):
        importlib.import_module(module.name)
    for name in ("onnx.checker", "onnx.shape_inference", "onnxruntime", "PIL.Image", "rich.progress"):
        importlib.import_module(name)
    bench = Workbench(options.bench)
    assert bench.networks and command_group()  # made here once, not by every child
    gc.freeze()  # children do not copy what they would only count
    for result in run_cases(bench, options.seed, numbers):
        print(json.dumps(result.__dict__), flush=True)
    return 0


def table(results: list[Result]) -> str:
    """How often each command left with each exit code, as a table of Markdown."""
    counts = Counter((command, code) for result in results for command, code in result.commands)
    codes = sorted({code for _, code in counts})
    rows = [["command", *(f"exit {code}" for code in codes), "all"]]
    for command in sorted({command for command, _ in counts}):
        row = [counts[command, code] for code in codes]
        rows.append([command, *map(str, row), str(sum(row))])
    sums = [sum(n for (_, c), n in counts.items() if c == code) for code in codes]
    rows.append(["all", *map(str, sums), str(sum(sums))])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| --- |" + " ---: |" * (len(codes) + 1), *lines[1:]])


if __name__ == "__main__":
    sys.exit(main())
