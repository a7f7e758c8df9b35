"""Other people's models with default settings: do they load, agree in float, and hold up in int8?

Each model has the shapes of its first sample and is calibrated and judged on its own samples of these shapes.
It is compiled in float and compared with onnxruntime; then profiled, quantized and compared again. Times are
medians of processor time on one thread, in turns with onnxruntime on the float model, and on what its own
tool makes of it (QDQ, minmax, per channel) on the same samples, where it can. Exits with 1 where float
differs by more than 1e-3 of an output's largest element, or a verdict is "broken". Where data decides how
many results there are (a detector with non-maximum suppression), SQNR is of what the first such node reads.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

import qglow
from qglow.core.errors import ModelError, UsageError
from qglow.core.types import Array
from qglow.graph.graph import Graph, Value
from qglow.graph.work import node_multiply_adds
from qglow.profiling import samples as profiled
from qglow.report.bench import Contender, bench
from qglow.report.contenders import of_executable, of_onnxruntime
from qglow.report.rivals import quantize_with_onnxruntime
from qglow.report.verdict import ModelVerdict
from qglow.runtime.executable import Executable
from qglow.tuning.costs import multiply_adds
from scripts.benchmarks.frame import Benchmark, Outcome, add_alternations_option, with_progress
from scripts.benchmarks.models.wild import WILD, joined_samples, wild_names, wild_samples
from scripts.benchmarks.tables import conditions, markdown_table

LARGEST_ERROR = 1e-3
INT8, REAL, RIVAL = "qglow int8", "ORT float32", "ORT int8"
TITLES = (
    "model",
    "float error",
    "int8 nodes",
    "float nodes",
    "opaque",
    "multiply-adds in int8, %",
    "SQNR, dB",
    "verdict",
    f"{REAL} / int8",
    f"{RIVAL} / int8",
)
_QUIET = 3

Sample = Mapping[str, Array]


@dataclass(frozen=True)
class WildRow:
    """Figures of one model.

    error: of float, relative to the largest element. share: of the multiplications with weights that are of
    int8 values, 0 to 1; None without such multiplications. sqnr_db: None where int8 is exact. ratio, rival:
    times of onnxruntime in float32 and in int8 over that of qglow in int8; None where its tool fails.
    """

    name: str
    error: float
    int8: int
    real: int
    opaque: int
    share: float | None
    sqnr_db: float | None
    verdict: str
    ratio: float
    rival: float | None

    @property
    def failures(self) -> list[str]:
        """One line for each promise that does not hold."""
        found = []
        if self.error > LARGEST_ERROR:
            found.append(f"{self.name}: float differs by {self.error:.1e}")
        if self.verdict == "broken":
            found.append(f"{self.name}: the int8 model is broken")
        return found


def measure(name: str, alternations: int, folder: Path = WILD) -> WildRow:
    """Load, compare, quantize and time one model of a folder."""
    path = folder / f"{name}.onnx"
    first, *others = wild_samples(folder / f"{name}.inputs.npz")
    samples = [first, *(other for other in others if _shapes(other) == _shapes(first))]
    model = qglow.load_model(path, _shapes(first))
    expected = _by_onnxruntime(path, samples)
    program = model.compile(threads=1)
    error = max(_error(program(sample), wanted) for sample, wanted in zip(samples, expected, strict=True))
    quantized = model.quantize(None if model.is_quantized else model.profile(joined_samples(samples)))
    int8 = quantized.compile(threads=1)
    report, verdict = quantized.report, quantized.verdict
    assert report is not None
    contenders = {INT8: _timed(int8, first), REAL: of_onnxruntime(path, first)}
    theirs = None if model.is_quantized else _by_their_tool(path, samples)
    if theirs is not None:
        contenders[RIVAL] = theirs
    result = bench(contenders, alternations, clock=time.process_time_ns)
    times = {key: latency.median_ms for key, latency in result.latencies.items()}
    return WildRow(
        name,
        error,
        len(report.quantized),
        len(report.float_nodes),
        sum(node.hosted for node in report.float_nodes),
        _share(quantized.graph),
        _level(int8, verdict, samples, expected),
        "none: its own parameters" if verdict is None else str(verdict).split(":")[0],
        times[REAL] / times[INT8],
        times[RIVAL] / times[INT8] if RIVAL in times else None,
    )


def _timed(program: Executable, sample: Sample) -> Contender:
    """A program on one sample; one whose results have run-time shapes is called, since no array fits them."""
    if not program.untyped_outputs:
        return of_executable(program, sample)

    def call() -> None:
        program(sample)

    return call


def _level(
    int8: Executable,
    verdict: ModelVerdict | None,
    samples: Sequence[Sample],
    expected: Sequence[Mapping[str, Array]],
) -> float | None:
    """SQNR of the worst output in dB, or of what the nodes read that decide how many results there are.

    The verdict has the latter, on the same samples: lists of different lengths have no difference.
    """
    if int8.untyped_outputs and verdict is not None:
        return verdict.sqnr_db
    return _sqnr_db([int8(sample) for sample in samples], expected)


def _by_their_tool(path: Path, samples: Sequence[Sample]) -> Contender | None:
    """onnxruntime on what its own tool makes of the model; None where the tool or the session fails."""
    kept = [profiled.Sample(str(n), sample, whole=True) for n, sample in enumerate(samples)]
    try:
        return of_onnxruntime(quantize_with_onnxruntime(path, kept, "minmax"), samples[0])
    except (ModelError, UsageError):
        return None


def _share(graph: Graph) -> float | None:
    """Part of the multiplications with weights whose operands are both integers."""
    whole = multiply_adds(graph)
    if not whole:
        return None
    integer = (node for node in graph.nodes if node.inputs[:1] and _is_quantized(node.inputs[0]))
    return math.fsum(map(node_multiply_adds, integer)) / whole


def _is_quantized(value: Value | None) -> bool:
    return value is not None and value.type.is_quantized


def _shapes(sample: Sample) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in sample.items()}


def _by_onnxruntime(path: Path, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, _QUIET
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return [dict(zip(names, session.run(names, dict(sample)), strict=True)) for sample in samples]


def _error(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Largest difference of an output, relative to its largest element; infinite for other shapes."""
    errors = [0.0]
    for name, wanted in expected.items():
        if wanted.shape != found[name].shape:
            return math.inf
        if wanted.size:
            difference = np.abs(wanted.astype(np.float64) - found[name]).max()
            errors.append(float(difference) / max(float(np.abs(wanted).max()), 1e-9))
    return max(errors)


def _sqnr_db(found: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]]) -> float | None:
    """SQNR of the worst output over all samples, in dB; None if no output differs, or all are zero."""
    levels = []
    for name in expected[0]:
        wanted = np.concatenate([np.ravel(outputs[name]).astype(np.float64) for outputs in expected])
        given = np.concatenate([np.ravel(outputs[name]).astype(np.float64) for outputs in found])
        noise, signal = float(np.square(wanted - given).sum()), float(np.square(wanted).sum())
        if noise > 0.0 and signal > 0.0:
            levels.append(10.0 * math.log10(signal / noise))
    return min(levels, default=None)


def to_markdown(rows: Sequence[WildRow]) -> str:
    """The table of the documentation."""
    body = [
        (
            row.name,
            f"{row.error:.0e}",
            f"{row.int8}",
            f"{row.real - row.opaque}",
            f"{row.opaque}",
            "none" if row.share is None else f"{100 * row.share:.0f}",
            "exact" if row.sqnr_db is None else f"{row.sqnr_db:.1f}",
            row.verdict,
            f"{row.ratio:.2f}",
            "none" if row.rival is None else f"{row.rival:.2f}",
        )
        for row in rows
    ]
    rivals = [row.rival for row in rows if row.rival is not None]
    shares = [row.share for row in rows if row.share is not None]
    note = f"Geometric mean of the ratios of times: {_mean([row.ratio for row in rows]):.2f}"
    note += f", against {RIVAL} {_mean(rivals):.2f} for {len(rivals)} models." if rivals else "."
    note += f" Mean share of the multiply-adds in int8: {100 * np.mean(shares):.0f} %." if shares else ""
    return f"{markdown_table(TITLES, body)}\n\n{note} {conditions()}"


def _mean(ratios: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


@dataclass(frozen=True)
class _Named:
    name: str


def _measure_all(options: argparse.Namespace) -> Outcome:
    names = options.models or wild_names()
    rows = [measure(model.name, options.alternations) for model in with_progress([_Named(n) for n in names])]
    return Outcome(to_markdown(rows), failures=[failure for row in rows for failure in row.failures])


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_alternations_option(parser, 15)


BENCHMARK = Benchmark(__doc__, _measure_all, table="wild", add_options=_add_options)
