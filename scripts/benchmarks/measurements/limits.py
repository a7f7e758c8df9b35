"""Matrix products by constant weights beside what the processor can do at most.

Products of few rows have to read all weights: they are timed in turns with a function that reads as many
bytes and does nothing else. Those of many rows have to multiply: their rate is beside the peak of int8
products, which is measured in the same run. Weights are N x N; a program's bytes are those of all its packed
constants. A program is called before it is timed, so that the caches hold what they have room for: in a
language model that is nothing, as with large N. Times of one thread are its processor time, in which other
processes do not count; several threads share one row alone, and are timed by the clock.
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
TITLES = (
    "weights",
    "N",
    "rows",
    "threads",
    "ms",
    "MB",
    "GB/s",
    "of reading alone",
    "multiply-adds a ns",
    "of the int8 peak",
)
SHAPES = [(1, 4096), (16, 4096), (128, 4096), (1, 8192)]
"""Rows and N. The last weights are larger than most caches."""


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


def measure(rows: int, size: int, threads: int, alternations: int) -> list[tuple[str, ...]]:
    """Rows of the table for one shape; every form takes turns with a reader of its bytes."""
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
            program = model.quantize(**choice).compile(threads=threads)
            read[name] = program.weight_bytes
            contenders[name] = of_executable(program, inputs)
            contenders[f"reading {name}"] = reader(target.machine, read[name], threads)
    peaks = [target.peak().products_per_ns]
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    found = bench(contenders, alternations, clock=clock)
    times = {name: one.median_ms for name, one in found.latencies.items()}
    peaks.append(target.peak().products_per_ns)
    return [
        row(
            (name, f"{size}", f"{rows}", f"{threads}"),
            times[name],
            times[f"reading {name}"],
            read[name],
            rows * size * size,
            max(peaks) * threads,
        )
        for name in FORMS
    ]


def row(
    first: tuple[str, ...], ms: float, reading: float, size: int, work: int, peak: float
) -> tuple[str, ...]:
    """Cells of a product of `work` multiply-adds in `ms`, where its `size` bytes alone take `reading`."""
    rate = work / ms / 1e6
    cells = f"{ms:.3f}", f"{size / 1e6:.1f}", f"{size / ms / 1e6:.1f}", f"{reading / ms:.0%}"
    return *first, *cells, f"{rate:.0f}", f"{rate / peak:.0%}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows: list[tuple[str, ...]] = []
    for threads in options.threads:
        for count, size in options.shapes:
            if count == 1 or threads == 1:
                rows += measure(count, size, threads, options.alternations)
    return Outcome(markdown_table(TITLES, rows))


def _shape(text: str) -> tuple[int, int]:
    rows, _, size = text.partition("x")
    return int(rows), int(size)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shapes", type=_shape, nargs="+", default=SHAPES, metavar="ROWSxN")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], metavar="N")
    add_alternations_option(parser, 20)


BENCHMARK = Benchmark(__doc__, _measure_all, table="limits", models=None, add_options=_add_options)
