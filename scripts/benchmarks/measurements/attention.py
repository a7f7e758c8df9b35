"""Attention as one instruction, as single ones, and the two products alone among these, on one thread.

Queries are random, with a factor and a mask that is added; caches hold what they have room for. Both programs
run in turns; their bits are equal. Compare ratios of one run only, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import UsageError
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph, Value
from qglow.graph.ops.elementwise import Add, Mul
from qglow.graph.ops.linear import MatMul
from qglow.graph.ops.movement import Expand
from qglow.graph.ops.shape import Reshape, Transpose
from qglow.graph.ops.softmax import Softmax
from qglow.instructions.passes import optimize
from qglow.instructions.program import Program
from qglow.lowering import lower
from qglow.targets.capabilities import timed
from qglow.targets.protocol import TimedTarget
from qglow.targets.registry import select_target
from qglow.toolchain.planning import plan_within_limit
from qglow.toolchain.timing import compare_instructions
from scripts.benchmarks.frame import Benchmark, Outcome
from scripts.benchmarks.tables import conditions, markdown_table

TITLES = (
    "heads, of keys",
    "rows",
    "keys",
    "depth",
    "one, us",
    "single, us",
    "their products, us",
    "one : products",
)


@dataclass(frozen=True)
class Sizes:
    """An attention: heads of queries and of keys, rows of queries, keys, and elements of each."""

    heads: int
    of_keys: int
    rows: int
    keys: int
    depth: int


SIZES = (
    Sizes(12, 12, 64, 256, 64),
    Sizes(12, 12, 128, 128, 64),
    Sizes(12, 12, 512, 512, 64),
    Sizes(8, 2, 64, 128, 128),
    Sizes(12, 12, 1, 256, 64),
    Sizes(32, 8, 1, 512, 128),
)


def attention(sizes: Sizes) -> Graph:
    """The operators, with heads repeated that several heads of queries read."""
    b = GraphBuilder("attention")
    queries = b.input("queries", float_type(1, sizes.heads, sizes.rows, sizes.depth))
    keys, values = (
        b.input(name, float_type(1, sizes.of_keys, sizes.keys, sizes.depth)) for name in ("keys", "values")
    )
    mask = b.input("mask", float_type(1, 1, 1, sizes.keys))
    turned = b.node(Transpose(perm=(0, 1, 3, 2)), _repeated(b, keys, sizes))
    scores = b.node(MatMul(), queries, turned)
    factor = b.constant("factor", np.array(1 / math.sqrt(sizes.depth), np.float32))
    masked = b.node(Add(), b.node(Mul(), scores, factor), mask)
    shares = b.node(Softmax(axis=-1), masked)
    return b.finish(b.node(MatMul(), shares, _repeated(b, values, sizes)))


def _repeated(b: GraphBuilder, value: Value, sizes: Sizes) -> Value:
    shared, size = sizes.heads // sizes.of_keys, (sizes.keys, sizes.depth)
    if shared == 1:
        return value
    apart = b.node(Reshape(shape=(1, sizes.of_keys, 1, *size)), value)
    many = b.node(Expand(shape=(1, sizes.of_keys, shared, *size)), apart)
    return b.node(Reshape(shape=(1, sizes.heads, *size)), many)


def planned(graph: Graph, target: TimedTarget, whole: bool) -> Program:
    """The program with kernels and a memory plan. whole: whether attention is one instruction."""
    program = lower(graph, target.backend, whole=whole)
    optimize(program)
    target.select(program, target.choices())
    plan_within_limit(program, target)
    return program


def measure(sizes: Sizes, target: TimedTarget) -> tuple[float, float, float]:
    """Median microseconds of one instruction, of single ones, and of the two products among them."""
    graph = attention(sizes)
    one, single = (planned(graph, target, whole) for whole in (True, False))
    ticks = compare_instructions(one, single, target)
    scale = target.peak().ns_per_tick / 1e3
    products = [i.name for i in single.code if i.operation.sums_products]
    if len(products) != 2 or not any(i.operation.opcode == "attention" for i in one.code):
        raise UsageError(f"attention of {sizes} is lowered to other instructions than this measures")
    of_products = sum(ticks[1][name] for name in products)
    return sum(ticks[0].values()) * scale, sum(ticks[1].values()) * scale, of_products * scale


def row(sizes: Sizes, found: tuple[float, float, float]) -> tuple[str, ...]:
    """Cells of one size."""
    heads = f"{sizes.heads}, {sizes.of_keys}"
    times = (f"{us:.0f}" for us in found)
    return heads, f"{sizes.rows}", f"{sizes.keys}", f"{sizes.depth}", *times, f"{found[0] / found[2]:.2f}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    target = timed(select_target(options.isa))
    rows = [row(sizes, measure(sizes, target)) for sizes in SIZES[: options.sizes]]
    return Outcome(f"{markdown_table(TITLES, rows)}\n\n{conditions()}")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--isa", metavar="NAME", help="of the kernels (default: that of this processor)")
    parser.add_argument("--sizes", type=int, metavar="N", help="only the first N sizes")


BENCHMARK = Benchmark(__doc__, _measure_all, table="attention", models=None, add_options=_add_options)
