"""Time of a mixture of experts with weights in blocks of 32 beside onnxruntime's QMoE, on one thread.

Each row goes to 4 of 32 experts, whose layers are SwiGLU from N to N columns and a product by N x N. Both run
the same file, in turns. onnxruntime keeps activations float beside codes of 4 bits at accuracy level 0, and
rounds them to int8 at level 4 and beside codes of 8 bits; qglow keeps them float, or rounds them with
`dynamic`. Times are processor time of
the calling thread, on which both compute.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.types import Array
from qglow.report.bench import bench
from qglow.report.contenders import of_executable, of_onnxruntime
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option
from scripts.benchmarks.tables import markdown_table

EXPERTS, CHOSEN, BLOCK = 32, 4, 32
LEVELS = {2: (0,), 4: (0, 4), 8: (0,)}
"""Accuracy levels of codes by their bits: where level 4 changes what onnxruntime computes."""
OURS, ROUNDED, OTHER = "qglow", "qglow dynamic", "onnxruntime"
TITLES = (
    "rows",
    "bits",
    "level",
    *(f"{name}, ms" for name in (OURS, ROUNDED, OTHER)),
    *(f"{OTHER} : {name}" for name in (OURS, ROUNDED)),
)


def mixture(rows: int, size: int, bits: int, level: int = 0) -> onnx.ModelProto:
    """A model of one QMoE with drawn weights, from x [rows, size] and scores [rows, experts]."""
    random = np.random.default_rng(0)
    constants: dict[str, Array] = {}
    for number, columns in ((1, 2 * size), (2, size)):
        codes = random.integers(0, 256, (EXPERTS, columns, size * bits // 8))
        constants[f"w{number}"] = codes.astype(np.uint8)
        scales = random.uniform(0.001, 0.01, (EXPERTS, columns, size // BLOCK))
        constants[f"s{number}"] = scales.astype(np.float32)
        constants[f"b{number}"] = random.normal(size=(EXPERTS, columns)).astype(np.float32)
    node = helper.make_node(
        "QMoE",
        ["x", "scores", *constants],
        ["y"],
        domain="com.microsoft",
        k=CHOSEN,
        activation_type="swiglu",
        swiglu_fusion=1,
        swiglu_limit=7.0,
        expert_weight_bits=bits,
        block_size=BLOCK,
        accuracy_level=level,
    )
    shapes = {"x": (rows, size), "scores": (rows, EXPERTS)}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in shapes.items()]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, size))
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "mixture", inputs, [result], stored)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def measure(rows: int, size: int, bits: int, level: int, alternations: int) -> dict[str, float]:
    """Median milliseconds of all."""
    random, file = np.random.default_rng(1), mixture(rows, size, bits, level).SerializeToString()
    shapes = {"x": (rows, size), "scores": (rows, EXPERTS)}
    inputs = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    model = qglow.load_model(file, native=True)
    rounded = model.quantize(None, qglow.Recipe(dynamic=True))
    programs = {OURS: model.compile(threads=1), ROUNDED: rounded.compile(threads=1)}
    contenders = {name: of_executable(program, inputs) for name, program in programs.items()}
    contenders[OTHER] = of_onnxruntime(file, inputs)
    found = bench(contenders, alternations, clock=time.thread_time_ns)
    return {name: one.median_ms for name, one in found.latencies.items()}


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows = []
    forms = [(bits, level) for bits in options.bits for level in LEVELS[bits]]
    for bits, level in forms:
        for count in options.rows:
            found = measure(count, options.size, bits, level, options.alternations)
            times = (f"{found[name]:.2f}" for name in (OURS, ROUNDED, OTHER))
            ratios = (f"{found[OTHER] / found[name]:.2f}" for name in (OURS, ROUNDED))
            rows.append((f"{count}", f"{bits}", f"{level}", *times, *ratios))
    return Outcome(markdown_table(TITLES, rows))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=1024, metavar="N")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128], metavar="M")
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 8], choices=[2, 4, 8])
    add_alternations_option(parser, 15)


BENCHMARK = Benchmark(__doc__, _measure_all, table="experts", models=None, add_options=_add_options)
