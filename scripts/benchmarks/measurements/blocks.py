"""Time of a matrix product by weights in blocks of 32 beside onnxruntime's MatMulNBits, on one thread.

Weights are N x N, with a scale and a zero point for each block. Both run the same file, in turns. onnxruntime
computes with float activations at level 0, and rounds them to int8 at level 4; qglow keeps them float, or
rounds each row to int8 where `dynamic` asks for it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.report.bench import Contender, bench
from qglow.report.contenders import of_executable, of_onnxruntime
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option
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


def product(rows: int, size: int, bits: int, level: int = 0) -> onnx.ModelProto:
    """[rows, size] by random weights [size, size] of so many bits, as MatMulNBits."""
    random = np.random.default_rng(size)
    count = -(-size // BLOCK)
    constants = {
        "w": random.integers(0, 256, (size, count, BLOCK * bits // 8)).astype(np.uint8),
        "scales": random.uniform(0.5, 1.5, size * count).astype(np.float32) / np.float32(1 << bits),
        "zeros": random.integers(0, 256, size * -(-count * bits // 8)).astype(np.uint8),
    }
    attributes: dict[str, Any] = {
        "K": size,
        "N": size,
        "bits": bits,
        "block_size": BLOCK,
        "accuracy_level": level,
    }
    node = helper.make_node("MatMulNBits", ["x", *constants], ["y"], domain="com.microsoft", **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "product", values[:1], values[1:], stored)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def measure(rows: int, size: int, bits: int, alternations: int) -> dict[str, float]:
    """Median milliseconds of both forms of qglow, and of onnxruntime by its level."""
    inputs = {"x": np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32)}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        path.write_bytes(product(rows, size, bits).SerializeToString())
        model = qglow.load_model(path)
        programs = {OURS: model.compile(threads=1), DYNAMIC: model.quantize(dynamic=True).compile(threads=1)}
    contenders: dict[str, Contender] = {name: of_executable(p, inputs) for name, p in programs.items()}
    for level in LEVELS:
        file = product(rows, size, bits, level).SerializeToString()
        contenders[str(level)] = of_onnxruntime(file, inputs)
    return {name: found.median_ms for name, found in bench(contenders, alternations).latencies.items()}


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
