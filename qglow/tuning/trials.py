"""Measurement of int8 models: accuracy on data, and latency relative to another program, run in turns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from qglow.core.types import Array, TensorType
from qglow.profiling.samples import Sample
from qglow.report.bench import bench
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.contenders import of_executable, random_inputs
from qglow.report.runner import RealInterface, Runner, real_types, stored
from qglow.report.significance import Flips
from qglow.report.task_metric import TaskMetric
from qglow.runtime.executable import Executable
from qglow.tuning.search import Figures

ALTERNATIONS = 30
"""Number of turns of each of the two programs."""

REMEMBERED = 1 << 30
"""Bytes of samples, and bytes of outputs of the float model, that are kept from one trial to the next."""


class Remembering:
    """A runner with a cache of its outputs, of at most `most` bytes."""

    def __init__(self, runner: Runner, most: int = REMEMBERED) -> None:
        self._runner = runner
        self._left = most
        self._answers: dict[bytes, dict[str, Array]] = {}

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Names and types of the inputs."""
        return self._runner.inputs

    def __call__(self, inputs: Mapping[str, Array], /) -> dict[str, Array]:
        """Run, or return the cached outputs for the same inputs."""
        key = hashlib.sha256(b"".join(inputs[name].tobytes() for name in sorted(inputs))).digest()
        if key in self._answers:
            return self._answers[key]
        answer = {name: np.array(array) for name, array in self._runner(inputs).items()}
        size = sum(array.nbytes for array in answer.values())
        if size <= self._left:
            self._left -= size
            self._answers[key] = answer
        return answer


class Measurement:
    """Measures programs one after the other.

    reference: the float model. base: the program that latencies are relative to. base_ms: its latency in
    milliseconds if it was measured already. scores: see `compare`.
    """

    def __init__(
        self,
        reference: Runner,
        data: Iterable[Sample],
        metric: TaskMetric | None,
        base: Executable,
        base_ms: float | None = None,
        scores: Collection[str] | None = None,
    ) -> None:
        self._reference = Remembering(reference)
        self._data = data
        self._metric = metric
        self._base = base
        self._base_ms = base_ms
        self._scores = scores

    def figures(
        self,
        program: Executable,
        weight_bytes: int,
        advance: Callable[[int], None] = lambda samples: None,
    ) -> Figures:
        """Measure a program with the interface of the base. `advance` gets the number of samples done."""
        subject = RealInterface(program, program.inputs, program.outputs)
        comparison = compare(
            subject,
            self._reference,
            self._data,
            metric=self._metric,
            scores=self._scores,
            advance=advance,
        )
        measure, accuracy, reference = measured_accuracy(comparison)
        error = drop_error(comparison)
        sqnr_db = comparison.pairing(INT8, FLOAT).overall.sqnr_db
        latency_ms = self._latency_ms(program)
        falls = comparison.metric is not None and comparison.metric.lower_is_better
        return Figures(measure, accuracy, reference, sqnr_db, latency_ms, weight_bytes, falls, error)

    def _latency_ms(self, program: Executable) -> float:
        if self._base_ms is None:
            alone = bench({"base": _contender(self._base)}, ALTERNATIONS)
            self._base_ms = alone.latencies["base"].median_ms
        if program is self._base:
            return self._base_ms
        turns = bench({"base": _contender(self._base), "program": _contender(program)}, ALTERNATIONS)
        return self._base_ms * turns.ratio("program", "base").ratio


def measured_accuracy(comparison: Comparison) -> tuple[str, float, float | None]:
    """Return the name of the measure of accuracy, and its values for int8 and float.

    The measure is the first that is available of: a metric that was asked for, top-1 with labels, agreement
    with float in top-1, SQNR. The value for float is None if the measure has none.
    """
    pairing = comparison.pairing(INT8, FLOAT)
    if comparison.metric is not None:
        values = comparison.metric.values
        return comparison.metric.name, values[INT8], values.get(FLOAT)
    if comparison.accuracy:
        top1 = {name: 100.0 * accuracy.top1 for name, accuracy in comparison.accuracy.items()}
        return "top-1", top1[INT8], top1[FLOAT]
    if pairing.agreement is not None:
        return "agreement", 100.0 * pairing.agreement.top1, 100.0
    return "SQNR", pairing.overall.sqnr_db, None


def drop_error(comparison: Comparison) -> float | None:
    """Half of the 95 % interval of the drop of top-1, or of agreement, in points; None for other measures."""
    pairing = comparison.pairing(INT8, FLOAT)
    if comparison.metric is not None:
        return None
    if pairing.flips is not None:
        return pairing.flips.drop_error
    if pairing.agreement is None:
        return None
    samples = pairing.agreement.samples
    return Flips(samples, round((1.0 - pairing.agreement.top1) * samples), 0).drop_error


def _contender(program: Executable) -> Callable[[], None]:
    return of_executable(program, _stored(program.inputs))


def _stored(inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    reals = random_inputs(real_types(inputs))
    return {name: stored(reals[name], kind) for name, kind in inputs.items()}
