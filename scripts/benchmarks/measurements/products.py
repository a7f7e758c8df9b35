"""Matrix products by integer weights beside onnxruntime and OpenVINO, on one thread.

Weights are N x N. Every form of qglow takes turns with what the others have of like arithmetic: float
activations with MatMulNBits of levels 0 and 1 and with OpenVINO's compressed weights; activations that are
rounded to int8 with MatMulNBits of level 4, DynamicQuantizeMatMul, and with OpenVINO's default. Times are
processor time of the calling thread, on which all of them compute.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import qglow
from qglow.core.types import Array
from qglow.report.bench import Contender, bench
from qglow.report.contenders import of_executable, of_onnxruntime
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option, announce
from scripts.benchmarks.measurements.limits import product
from scripts.benchmarks.rivals.products import dynamic_product, nbits_product, openvino_product
from scripts.benchmarks.tables import markdown_table

OURS = "qglow"
TITLES = ("weights", "rows", "qglow, ms", "onnxruntime, ms", "OpenVINO, ms", "best of them : qglow")


@dataclass(frozen=True)
class Form:
    """A form of weights: bits, the block (None for one scale a column), and whether rows become int8."""

    bits: int
    block: int | None
    rounds: bool

    @property
    def name(self) -> str:
        """As in the table."""
        weights = "int8 by channel" if self.block is None else f"`int{self.bits}:{self.block}`"
        return f"{weights}, dynamic" if self.rounds else weights

    @property
    def choice(self) -> dict[str, Any]:
        """Choices of `quantize`."""
        weights = {} if self.block is None else {"weights": f"int{self.bits}:{self.block}"}
        return weights | ({"dynamic": True} if self.rounds else {})

    def rivals(self, x: Array) -> dict[str, Contender]:
        """Calls of the others by name, which begins with the program's."""
        rows, size = x.shape
        found = {"OpenVINO": openvino_product(x, self.bits, self.block or size, self.rounds)}
        if self.block is None:
            found["onnxruntime"] = of_onnxruntime(dynamic_product(rows, size).SerializeToString(), {"x": x})
            return found
        for level in (4,) if self.rounds else (0, 1):
            model = nbits_product(rows, size, self.bits, self.block, level)
            found[f"onnxruntime {level}"] = of_onnxruntime(model.SerializeToString(), {"x": x})
        return found


FORMS = (
    Form(8, None, True),
    Form(8, 32, True),
    Form(4, 32, True),
    Form(4, 128, True),
    Form(8, 32, False),
    Form(4, 32, False),
    Form(4, 128, False),
)


def measure(rows: int, size: int, alternations: int) -> list[tuple[Form, dict[str, float]]]:
    """Median milliseconds of qglow and of the faster setting of each of the others, by form."""
    x = np.random.default_rng(0).normal(size=(rows, size)).astype(np.float32)
    results = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "product.onnx"
        path.write_bytes(product(rows, size).SerializeToString())
        model = qglow.load_model(path)
        for form in FORMS:
            announce(form.name, f"{rows} rows")
            program = model.quantize(**form.choice).compile(threads=1)
            contenders = {OURS: of_executable(program, {"x": x}), **form.rivals(x)}
            found = bench(contenders, alternations, clock=time.thread_time_ns).latencies
            best: dict[str, float] = {}
            for name, one in found.items():
                program_name = name.split()[0]
                best[program_name] = min(best.get(program_name, math.inf), one.median_ms)
            results.append((form, best))
    return results


def ratio(found: dict[str, float]) -> float:
    """How many times as long as qglow the fastest of the others takes."""
    return min(ms for name, ms in found.items() if name != OURS) / found[OURS]


def row(form: Form, rows: int, found: dict[str, float]) -> tuple[str, ...]:
    """Cells of a form."""
    times = (f"{found[name]:.3f}" for name in (OURS, "onnxruntime", "OpenVINO"))
    return form.name, f"{rows}", *times, f"{ratio(found):.2f}"


def _measure_all(options: argparse.Namespace) -> Outcome:
    cells, ratios = [], []
    for rows in options.rows:
        for form, found in measure(rows, options.size, options.alternations):
            cells.append(row(form, rows, found))
            ratios.append(ratio(found))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    table = markdown_table(TITLES, cells)
    return Outcome(f"{table}\n\nGeometric mean of the last column: {mean:.2f}; least: {min(ratios):.2f}.")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", type=int, default=4096, metavar="N")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128], metavar="M")
    add_alternations_option(parser, 11)


BENCHMARK = Benchmark(__doc__, _measure_all, table="products", models=None, add_options=_add_options)
