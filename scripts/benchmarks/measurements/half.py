"""Time of a matrix product by weights in float32, float16 and bfloat16, on one thread.

Weights are N x N; results of the types of 16 bits are rounded to them. All three take turns; medians count.
Large N shows what memory gives: the weights of one row of inputs are read once and used once. Prints the
rows of a Markdown table. Compare ratios of one run only, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from qglow.core.types import HALF_TYPES, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.functions import RoundTo
from qglow.graph.ops.linear import Gemm
from qglow.numerics.half import store
from qglow.targets.registry import running_names
from qglow.toolchain import CompileOptions, compile_graph
from scripts.benchmarks.frame import Benchmark, Outcome
from scripts.benchmarks.tables import markdown_table

TYPES = ("float32", *HALF_TYPES)
RATIOS = tuple(f"float32 : {name}" for name in HALF_TYPES)
TITLES = ("inputs", "weights", "instruction set", *(f"{name}, us" for name in TYPES), *RATIOS)
WARMUP = 2


def product(rows: int, size: int, element: str) -> Graph:
    """[rows, size] by random weights [size, size] of this type."""
    random = np.random.default_rng(size)
    data = random.normal(size=(size, size)).astype(np.float32)
    b = GraphBuilder(f"product_{element}")
    x = b.input("x", float_type(rows, size))
    if element not in HALF_TYPES:
        return b.finish(b.node(Gemm(), x, b.constant("w", data), name="y"))
    raw = b.node(Gemm(), x, b.constant("w", store(data, element)), name="raw")
    return b.finish(b.node(RoundTo(element), raw, name="y"))


def call(rows: int, size: int, element: str, isa: str) -> Callable[[], None]:
    """The compiled product over random inputs."""
    program = compile_graph(product(rows, size, element), CompileOptions(isa=isa, threads=1, cache=False))
    x = np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32)
    return program.bind({"x": x}, {"y": np.empty((rows, size), np.float32)})


def measure(rows: int, size: int, isa: str, turns: int) -> dict[str, float]:
    """Median microseconds by type."""
    calls = {element: call(rows, size, element, isa) for element in TYPES}
    times: dict[str, list[float]] = {element: [] for element in TYPES}
    for turn in range(WARMUP + turns):
        for element, run in calls.items():
            start = time.perf_counter()
            run()
            if turn >= WARMUP:
                times[element].append(1e6 * (time.perf_counter() - start))
    return {element: float(np.median(found)) for element, found in times.items()}


def row(rows: int, size: int, isa: str, found: dict[str, float]) -> tuple[str, ...]:
    """Times, and how many times as fast as float32 the types of 16 bits are."""
    ratios = (f"{found['float32'] / found[element]:.2f}" for element in HALF_TYPES)
    return f"{rows}", f"{size} x {size}", isa, *(f"{found[e]:.0f}" for e in TYPES), *ratios


def _measure_all(options: argparse.Namespace) -> Outcome:
    shapes = [(m, n, isa) for isa in options.isas for n in options.sizes for m in options.rows]
    return Outcome(markdown_table(TITLES, [row(*shape, measure(*shape, options.turns)) for shape in shapes]))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 4096], metavar="N")
    parser.add_argument("--rows", type=int, nargs="+", default=[1], metavar="M")
    parser.add_argument("--isas", nargs="+", default=running_names()[-1:], metavar="NAME")
    parser.add_argument("--turns", type=int, default=30, metavar="N")


BENCHMARK = Benchmark(__doc__, _measure_all, models=None, add_options=_add_options)
