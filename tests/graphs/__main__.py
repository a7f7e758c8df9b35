"""Check random correct models, and save each that breaks a rule as a minimal ONNX file with its inputs."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import hypothesis
import numpy as np

from tests.graphs.campaign_log import CampaignLog
from tests.graphs.checker import check
from tests.graphs.drawing import Case, cases

BLOCK = 25
"""Cases that are drawn from one seed: a block finds one failure at most."""


def parsed(words: list[str] | None = None) -> argparse.Namespace:
    """The options of a campaign."""
    parser = argparse.ArgumentParser(prog="python -m tests.graphs", description=__doc__)
    parser.add_argument("--cases", type=int, default=300, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn from (default: %(default)s)")
    parser.add_argument("--block", type=int, help=f"draw this block of {BLOCK} cases alone")
    parser.add_argument("--log", type=Path, help="file of finished blocks, which the next run passes over")
    parser.add_argument("--save", type=Path, help="folder of failures (default: a new temporary one)")
    parser.add_argument("--replay", type=Path, help="check the model of this folder again, and draw nothing")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run a campaign, or one saved failure."""
    options = parsed(words)
    if options.replay is not None:
        print(check(read(options.replay)))
        return 0
    folder = options.save or Path(tempfile.mkdtemp(prefix="qglow-graphs-"))
    log, start = CampaignLog.opened(options.seed, options.log), time.monotonic()
    blocks = range(-(-options.cases // BLOCK)) if options.block is None else [options.block]
    for block in blocks:
        if block in log.done and options.block is None:
            continue
        size = BLOCK if options.block is not None else min(BLOCK, options.cases - block * BLOCK)
        counts = Counter[str]()
        failure = run_block(options.seed, block, size, folder / f"{options.seed}-{block}", counts)
        log.add(block, counts, failure)
        if failure is not None:
            print(f"python -m tests.graphs --seed {options.seed} --block {block}  # {failure}")
            print(f"python -m tests.graphs --replay {folder / f'{options.seed}-{block}'}", flush=True)
    print(f"{log.counts.total()} cases without a failure, {time.monotonic() - start:.0f} s:")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(log.counts.items())))
    print(f"{len(log.failures)} blocks broke a rule" if log.failures else "no rule was broken")
    return 1 if log.failures else 0


def run_block(seed: int, block: int, size: int, folder: Path, counts: Counter[str]) -> str | None:
    """Check so many cases; save the smallest that breaks a rule, and return which rule."""

    @hypothesis.seed(seed * 1_000_003 + block)
    @hypothesis.settings(
        max_examples=size,
        deadline=None,
        database=None,
        derandomize=False,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(cases())
    def run(case: Case) -> None:
        try:
            counts[check(case)] += 1
        except Exception:
            save(case, folder)
            raise

    try:
        run()
    except Exception as error:  # whatever a checked model raises is a failure to report
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return None


def save(case: Case, folder: Path) -> None:
    """Write a case, over a larger one of the same block."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model)
    names = list(case.samples[0])
    arrays = {str(i): np.stack([s[name] for s in case.samples]) for i, name in enumerate(names)}
    np.savez(folder / "case.npz", names=names, exact=sorted(case.exact), choices=case.choices, **arrays)


def read(folder: Path) -> Case:
    """A case that was saved."""
    with np.load(folder / "case.npz") as file:
        names = [str(name) for name in file["names"]]
        arrays = [file[str(i)] for i in range(len(names))]
        samples = tuple(
            {name: a[k] for name, a in zip(names, arrays, strict=True)} for k in range(len(arrays[0]))
        )
        exact = frozenset(map(str, file["exact"]))
        return Case((folder / "model.onnx").read_bytes(), samples, exact, (), int(file["choices"]))


if __name__ == "__main__":
    sys.exit(main())
