"""A language model of a billion parameters in 4 bits: memory and time of writing, compiling and running it.

The Llama has drawn weights and the sizes of TinyLlama, if nothing else is asked for. It is written tensor by
tensor, compiled ahead of time, loaded from its one file, and adds tokens, each in a process of its own, on
one thread. Memory is the largest resident set, the mapped pages of weights among it. Exits with 1 where a
step takes more than --most MiB, or loading more than a second.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.benchmarks.frame import Benchmark, Outcome, announce
from scripts.benchmarks.tables import conditions, markdown_table
from scripts.benchmarks.workers.peak import run_alone
from scripts.random_llama import LlamaSize

BASE = LlamaSize(layers=22, width=2048, heads=32, groups=4, inner=5632, words=32000)
"""1.03 billion parameters."""
MOST_MIB = 4096
MOST_SECONDS = 1.0
TITLES = ("step", "seconds", "peak memory, MiB", "file, MB")


def _measure_all(options: argparse.Namespace) -> Outcome:
    size = LlamaSize(**{f.name: getattr(options, f.name) for f in fields(LlamaSize)})
    python, rows, failures = [sys.executable, "-m"], [], []
    with TemporaryDirectory(prefix="qglow-large-", dir=options.folder) as name:
        model, program = Path(name) / "llama.onnx", Path(name) / "llama.qglow"
        sizes = [f"--{f.name}={getattr(size, f.name)}" for f in fields(LlamaSize)]
        compiling = ["compile", str(model), "--context", str(options.context), "-o", str(program)]
        for step, path, words in (
            ("write the model", model, ["scripts.random_llama", str(model), "--weights=int4", *sizes]),
            ("compile it", program, ["qglow.cli.main", *compiling]),
        ):
            announce(step)
            run = run_alone([*python, *words])
            taken = sum(file.stat().st_size for file in Path(name).glob(f"{path.name}*"))
            rows.append((step, f"{run.seconds:.0f}", f"{run.mib:.0f}", f"{taken / 1e6:.0f}"))
            if run.mib > options.most:
                failures.append(f"{step}: {run.mib:.0f} MiB, more than {options.most}")
        announce("run it")
        worker = [*python, "scripts.benchmarks.workers.generating", str(program), str(options.count)]
        run_alone(worker)  # fills caches, as any use before does
        run = run_alone(worker)
    found = json.loads(run.output)
    rows.append(("load it", f"{found['load']:.2f}", "", ""))
    rows.append((f"add {options.count} tokens", f"{options.count / found['rate']:.1f}", f"{run.mib:.0f}", ""))
    if found["load"] > MOST_SECONDS:
        failures.append(f"loading takes {found['load']:.2f} s, more than {MOST_SECONDS:g}")
    text = (
        f"{size.parameters / 1e9:.2f} billion parameters, {found['rate']:.1f} tokens a second. {conditions()}"
    )
    return Outcome(f"{markdown_table(TITLES, rows)}\n\n{text}", failures=failures)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, metavar="DIR", help="for its files (the system's)")
    parser.add_argument("--most", type=int, default=MOST_MIB, metavar="MIB", help=f"({MOST_MIB})")
    for name, default in (("context", 256), ("count", 32)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"({default})")
    for field in fields(LlamaSize):
        default = getattr(BASE, field.name)
        parser.add_argument(f"--{field.name}", type=int, default=default, metavar="N", help=f"({default})")


BENCHMARK = Benchmark(__doc__, _measure_all, table="large", models=None, add_options=_add_options)
