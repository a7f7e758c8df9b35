"""Matrix products by constant weights beside what the processor can do at most, on one thread.

Products of few rows have to read all weights: they are timed in turns with a function that reads as many
bytes and does nothing else. Those of many rows have to multiply: their rate is beside the peak of int8
products, which is measured in the same run. Weights are N x N; a program's bytes are those of all its packed
constants. Times are processor time of the thread, in which other processes do not count.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.report.bench import Contender, bench
from qglow.report.contenders import of_executable
from qglow.targets.native.target import NativeTarget
from qglow.targets.registry import select_target
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option
from scripts.benchmarks.reading import reader
from scripts.benchmarks.tables import markdown_table

FORMS: dict[str, dict[str, Any]] = {
    "int8 by channel, dynamic": {"dynamic": True},
    "`int8`, dynamic": {"weights": "int8", "dynamic": True},
    "`int4`, dynamic": {"weights": "int4", "dynamic": True},
    "`int4:128`, dynamic": {"weights": "int4:128", "dynamic": True},
    "`int8`": {"weights": "int8"},
    "`int4`": {"weights": "int4"},
}
"""Choices of quantization by name; activations without `dynamic` are float."""
TITLES = ("weights", "rows", "ms", "MB", "GB/s", "of reading alone", "multiply-adds a ns", "of the int8 peak")


def product(rows: int, size: int) -> onnx.ModelProto:
    """[rows, size] by drawn float weights [size, size]."""
    random = np.random.default_rng(size)
    weights = random.normal(size=(size, size)).astype(np.float32) / np.float32(np.sqrt(size))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size]) for name in ("x", "y")]
    graph = helper.make_graph(
        [node], "product", values[:1], values[1:], [numpy_helper.from_array(weights, "w")]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def measure(rows: int, size: int, alternations: int) -> list[tuple[str, ...]]:
    """Rows of the table for one number of rows; every form takes turns with a reader of its bytes."""
    target = select_target()
    assert isinstance(target, NativeTarget)
    inputs = {"x": np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32)}
    contenders: dict[str, Contender] = {}
    read: dict[str, int] = {}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        path.write_bytes(product(rows, size).SerializeToString())
        model = qglow.load_model(path)
        for name, choice in FORMS.items():
            program = model.quantize(**choice).compile(threads=1)
            read[name] = program.weight_bytes
            contenders[name] = of_executable(program, inputs)
            contenders[f"reading {name}"] = reader(target.machine, read[name])
    peaks = [target.peak().products_per_ns]
    found = bench(contenders, alternations, clock=time.thread_time_ns)
    times = {name: one.median_ms for name, one in found.latencies.items()}
    peaks.append(target.peak().products_per_ns)
    work = rows * size * size
    return [
        row(name, rows, times[name], times[f"reading {name}"], read[name], work, max(peaks)) for name in FORMS
    ]


def row(
    name: str, rows: int, ms: float, reading: float, size: int, work: int, peak: float
) -> tuple[str, ...]:
    """Cells of a product of `work` multiply-adds in `ms`, where its `size` bytes alone take `reading`."""
    rate = work / ms / 1e6
    cells = f"{rows}", f"{ms:.3f}", f"{size / 1e6:.1f}", f"{size / ms / 1e6:.1f}", f"{reading / ms:.0%}"
    return name, *cells, f"{rate:.0f}", f"{rate / peak:.0%}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    shapes = [(m, n) for n in options.sizes for m in options.rows]
    return Outcome(
        markdown_table(TITLES, [r for shape in shapes for r in measure(*shape, options.alternations)])
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096], metavar="N")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128], metavar="M")
    add_alternations_option(parser, 20)


BENCHMARK = Benchmark(__doc__, _measure_all, table="limits", models=None, add_options=_add_options)
