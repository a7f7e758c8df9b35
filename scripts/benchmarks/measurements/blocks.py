"""Time of a matrix product by weights in blocks of 32 beside onnxruntime's MatMulNBits, on one thread.

Weights are N x N, with a scale and a zero point for each block. Both run the same file, in turns. onnxruntime
computes with float activations at level 0, and rounds them to int8 at level 4; qglow keeps them float, or
rounds each row to int8 where `dynamic` asks for it. Times are processor time of the calling thread, on which
both compute.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import qglow
from qglow.report.bench import Contender, bench
from qglow.report.contenders import of_executable, of_onnxruntime
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option
from scripts.benchmarks.rivals.products import nbits_product
from scripts.benchmarks.tables import markdown_table

BLOCK = 32
LEVELS = (0, 4)
OURS, DYNAMIC = "qglow", "qglow dynamic"
RIVALS = {"0": OURS, "4": DYNAMIC}
"""The form that computes what a level does."""
TITLES = (
    "rows",
    "weights",
    "bits",
    *(f"{name}, ms" for name in (OURS, DYNAMIC)),
    *(f"onnxruntime level {level}, ms" for level in LEVELS),
    *(f"level {level} : {name}" for level, name in RIVALS.items()),
)


def measure(rows: int, size: int, bits: int, alternations: int) -> dict[str, float]:
    """Median milliseconds of both forms of qglow, and of onnxruntime by its level."""
    inputs = {"x": np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        path.write_bytes(nbits_product(rows, size, bits, BLOCK).SerializeToString())
        model = qglow.load_model(path)
        programs = {OURS: model.compile(threads=1), DYNAMIC: model.quantize(dynamic=True).compile(threads=1)}
    contenders: dict[str, Contender] = {name: of_executable(p, inputs) for name, p in programs.items()}
    for level in LEVELS:
        file = nbits_product(rows, size, bits, BLOCK, level).SerializeToString()
        contenders[str(level)] = of_onnxruntime(file, inputs)
    found = bench(contenders, alternations, clock=time.thread_time_ns)
    return {name: one.median_ms for name, one in found.latencies.items()}


def row(rows: int, size: int, bits: int, found: dict[str, float]) -> tuple[str, ...]:
    """Times, and how many times as long onnxruntime takes."""
    times = (f"{found[name]:.2f}" for name in (OURS, DYNAMIC, *map(str, LEVELS)))
    ratios = (f"{found[level] / found[name]:.2f}" for level, name in RIVALS.items())
    return f"{rows}", f"{size} x {size}", f"{bits}", *times, *ratios


def _measure_all(options: argparse.Namespace) -> Outcome:
    shapes = [(m, n, bits) for n in options.sizes for bits in options.bits for m in options.rows]
    rows = [row(*shape, measure(*shape, options.alternations)) for shape in shapes]
    return Outcome(markdown_table(TITLES, rows))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096], metavar="N")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128], metavar="M")
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 8], choices=[2, 4, 8])
    add_alternations_option(parser, 15)


BENCHMARK = Benchmark(__doc__, _measure_all, table="blocks", models=None, add_options=_add_options)
