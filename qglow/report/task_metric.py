"""A model's own figure of merit: built in, or a function that the user names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from qglow.core.errors import DataError, QglowError, UsageError
from qglow.core.types import Array
from qglow.metrics.built_in import COMPARED, DECODED, FUNCTIONS, LOWER_IS_BETTER, ONE_BY_ONE
from qglow.metrics.built_in import NAMES as METRICS
from qglow.metrics.decoders import DECODERS
from qglow.metrics.truth import Truth
from qglow.profiling.labels import Label
from qglow.profiling.samples import Batch
from qglow.profiling.sources import find_function

T = TypeVar("T")

ARGUMENTS = ("outputs", "labels", "keys", "expected", "inputs", "tokens", "photos", "sequences")
"""Names of the parameters that a metric may have."""
OPTIONAL = ("labels",)
"""Those of them that may have a default, which holds where the data has none."""
DECODER_ARGUMENTS = ("outputs", "inputs", "keys", "photos")
"""Names of the parameters that a decoder may have."""


@dataclass(frozen=True)
class TaskMetric:
    """A figure of all answers together, higher is better unless `lower_is_better`.

    function: takes some of ARGUMENTS by name and gives a number. outputs: real arrays by output name,
    samples along the first axis. labels: int64 [samples], or [samples, positions] with negative ones where a
    position does not count. keys: the names of the samples, a list of str.
    expected: like outputs, of the float model in onnxruntime; a metric that asks for it says how close
    to float a program is, and so has no figure for float itself. inputs: like outputs, what was fed. tokens:
    the first integer input [samples, positions], or None.
    photos, sequences: what `truth` knows of every sample, a list of `Photo` or of tuples of integers;
    without that file, sequences are the labels of positions that count.
    wanted, optional: parameters of the function; optional ones are given where the data has them.
    one_by_one: gives the numbers [samples, positions] whose mean the figure is, of the same parameters; NaN
    where a position does not count. None for a figure that is none.
    """

    name: str
    function: Callable[..., float]
    wanted: tuple[str, ...]
    truth: Truth = field(default_factory=lambda: Truth(None))
    optional: tuple[str, ...] = ()
    lower_is_better: bool = False
    one_by_one: Callable[..., Array] | None = None

    @property
    def is_relative(self) -> bool:
        """Whether it compares with the float model."""
        return "expected" in self.wanted

    @property
    def reads_truth(self) -> bool:
        """Whether it reads the file of labels itself, where there is one."""
        return "photos" in self.wanted or "sequences" in self.wanted

    @property
    def identity(self) -> str:
        """The name, and the digest of the truth file where it reads one. Raises DataError."""
        has_one = self.reads_truth and self.truth.has_file
        return f"{self.name} {self.truth.sha256}" if has_one else self.name

    def of(self, answers: Answers, expected: Answers) -> float:
        """The figure of a program. Raises UsageError if the function fails or gives no number."""
        value = self._called(answers, expected, lambda given: float(self.function(**given)))
        if math.isnan(value):
            raise UsageError(f"metric {self.name} is not a number on this data", field="metric")
        return value

    def spread(self, answers: Answers, expected: Answers) -> Spread | None:
        """Spread of the numbers whose mean the figure is; None where it is none. Raises UsageError."""
        one_by_one = self.one_by_one
        if one_by_one is None:
            return None
        return Spread.of(self._called(answers, expected, lambda given: one_by_one(**given)), answers.keys)

    def _called(self, answers: Answers, expected: Answers, function: Callable[[dict[str, Any]], T]) -> T:
        """The result of a function of the parameters that are wanted. Raises UsageError where it fails."""
        given: dict[str, Callable[[], Any]] = {
            "outputs": answers.outputs,
            "labels": lambda: self._labels(answers),
            "keys": lambda: list(answers.keys),
            "expected": expected.outputs,
            "inputs": answers.inputs,
            "tokens": answers.tokens,
            "photos": lambda: self.truth.photos(answers.keys),
            "sequences": lambda: self._sequences(answers),
        }
        known = self.optional if _are_alike(answers.labels) else ()
        try:
            return function({name: given[name]() for name in (*self.wanted, *known)})
        except QglowError:
            raise
        except Exception as error:
            raise UsageError(f"metric {self.name} raised {type(error).__name__}: {error}") from error

    def _labels(self, answers: Answers) -> Array:
        """Labels as int64 [samples] or [samples, positions].

        Raises DataError where one is missing or of another length.
        """
        self._check_labelled(answers)
        if not _are_alike(answers.labels):
            raise DataError(f"metric {self.name} needs labels of the same length for all samples")
        return np.array(answers.labels, np.int64)

    def _sequences(self, answers: Answers) -> list[tuple[int, ...]]:
        """Sequences of the truth file, else labels of positions. Raises DataError for neither."""
        if self.truth.has_file:
            return self.truth.sequences(answers.keys)
        if all(label is None for label in answers.labels):
            return self.truth.sequences(answers.keys)  # which says that the file is missing
        self._check_labelled(answers)
        rows = [label if isinstance(label, tuple) else (label,) for label in answers.labels]
        return [tuple(symbol for symbol in row if symbol is not None and symbol >= 0) for row in rows]

    def _check_labelled(self, answers: Answers) -> None:
        if None in answers.labels:
            key = answers.keys[answers.labels.index(None)]
            raise DataError(f"metric {self.name} needs labels; {key} has none")


@dataclass
class Answers:
    """Outputs of one program for every sample so far, with names and labels of the samples.

    keeps_inputs, keeps_tokens: whether the inputs, or those that may be tokens, are wanted too.
    """

    keeps_inputs: bool = False
    keys: list[str] = field(default_factory=list)
    labels: list[Label | None] = field(default_factory=list)
    pieces: dict[str, list[Array]] = field(default_factory=dict)
    fed: dict[str, list[Array]] = field(default_factory=dict)
    keeps_tokens: bool = False

    @staticmethod
    def wanted_by(metric: TaskMetric) -> Answers:
        """Empty, to keep what the metric asks for."""
        return Answers("inputs" in metric.wanted, keeps_tokens="tokens" in metric.wanted)

    def add(self, batch: Batch, outputs: Mapping[str, Array]) -> None:
        """Keep the outputs of a batch."""
        self.keys += batch.keys
        self.labels += batch.labels
        for name, array in outputs.items():
            self.pieces.setdefault(name, []).append(np.array(array))
        for name, array in batch.stacked.items():
            if self.keeps_inputs or (self.keeps_tokens and _may_be_tokens(array)):
                self.fed.setdefault(name, []).append(array)

    def outputs(self) -> dict[str, Array]:
        """Every output, samples along its first axis."""
        return _joined("output", self.pieces)

    def inputs(self) -> dict[str, Array]:
        """Every input, samples along its first axis."""
        return _joined("input", self.fed)

    def tokens(self) -> Array | None:
        """The first integer input [N, T]; None where there is none."""
        return next((array for array in self.inputs().values() if _may_be_tokens(array)), None)


def _joined(what: str, pieces: Mapping[str, Sequence[Array]]) -> dict[str, Array]:
    """Arrays of all samples. Raises DataError where their shapes differ."""
    for name, parts in pieces.items():
        shapes = {part.shape[1:] for part in parts}
        if len(shapes) > 1:
            first, second = (list(shape) for shape in sorted(shapes)[:2])
            raise DataError(
                f"the metric takes all samples of {what} '{name}' at once, but these have shapes {first} and "
                f"{second}: pad them to one, or compare without the metric"
            )
    return {name: np.concatenate(parts) for name, parts in pieces.items()}


@dataclass(frozen=True)
class Spread:
    """Numbers of all positions whose mean is a figure.

    high: 99 % of them are at most that large. largest: the largest, at a position of the sample of this name.
    quarters: means over each quarter of the positions, in order; empty for fewer than four.
    """

    high: float
    largest: float
    sample: str
    position: int
    quarters: tuple[float, ...]

    @staticmethod
    def of(numbers: Array, keys: Sequence[str]) -> Spread:
        """Numbers [samples, positions], NaN where one does not count."""
        samples, positions = numbers.shape
        place = int(np.nanargmax(numbers))
        parts = [part for part in np.array_split(numbers, 4, axis=1) if positions >= 4]
        counted = all(np.any(np.isfinite(part)) for part in parts)
        return Spread(
            high=float(np.nanpercentile(numbers, 99)),
            largest=float(numbers.reshape(-1)[place]),
            sample=keys[place // positions] if len(keys) == samples else str(place // positions),
            position=place % positions,
            quarters=tuple(float(np.nanmean(part)) for part in parts) if counted else (),
        )


@dataclass(frozen=True)
class MetricFigures:
    """Values of a metric by program; the float model has none where the metric compares with it.

    spreads: of the numbers whose means the values are, where the metric has such.
    """

    name: str
    values: dict[str, float]
    lower_is_better: bool = False
    spreads: dict[str, Spread] = field(default_factory=dict)

    def drop(self, subject: str, reference: str) -> float | None:
        """Difference by which the subject is worse; None if the reference has no figure."""
        if reference not in self.values:
            return None
        difference = self.values[reference] - self.values[subject]
        return -difference if self.lower_is_better else difference

    def check_side(self, lowest: float | None, highest: float | None) -> None:
        """Raise UsageError for a limit on the side where the metric is better, which would limit nothing."""
        check_side(self.name, self.lower_is_better, lowest, highest)


def open_metric(
    metric: str | Callable[..., float] | TaskMetric, labels: str | Path | None = None
) -> TaskMetric:
    """A built-in metric by name, with a decoder behind a colon or not; a function; or the one that
    "package.module:function" names. `labels` is the truth file of metrics that read one; a .csv has labels of
    the data in any case.

    Raises UsageError for an unknown name, or a function with a parameter that is not given.
    """
    if isinstance(metric, TaskMetric):
        return metric
    truth = Truth(None if labels is None or Path(labels).suffix.lower() == ".csv" else Path(labels))
    if callable(metric):
        return _described(getattr(metric, "__name__", "metric"), metric, truth)
    if metric in FUNCTIONS:
        found = _described(metric, FUNCTIONS[metric], truth)
        one_by_one = ONE_BY_ONE.get(metric)
        return replace(found, lower_is_better=metric in LOWER_IS_BETTER, one_by_one=one_by_one)
    decoded = _decoder_of(metric)
    if decoded is not None:
        name, decode = decoded
        asks = _asked(f"the decoder of {metric}", decode, DECODER_ARGUMENTS)
        return TaskMetric(metric, *DECODED[name].with_decoder(decode, asks), truth)
    if not is_function_name(metric):
        if metric in COMPARED:
            raise UsageError(f"metric {metric}: every comparison has it, leave `metric` out", field="metric")
        known = f"{', '.join(METRICS)} and module:function"
        raise UsageError(f"no metric is called {metric!r}; there are {known}")
    try:
        function = find_function(metric, "metric")
    except UsageError as error:
        if metric.partition(":")[0] not in DECODED:
            raise
        raise UsageError(
            f"{error}; decoders are {', '.join(DECODERS)} and module:function", field="metric"
        ) from error
    return _described(metric, function, truth)


def check_side(metric: str, lower_is_better: bool, lowest: float | None, highest: float | None) -> None:
    """Raise UsageError for a lowest value of a metric that is better the lower it is, or the reverse."""
    if lower_is_better and lowest is not None:
        raise UsageError(f"{metric} is better the lower it is: limit `max_metric`", field="min_metric")
    if not lower_is_better and highest is not None:
        raise UsageError(f"{metric} is better the higher it is: limit `min_metric`", field="max_metric")


def data_labels(metric: TaskMetric | None, labels: str | Path | None) -> str | Path | None:
    """The labels that the data is opened with: none where the metric reads that file itself."""
    reads_it = metric is not None and metric.reads_truth and metric.truth.has_file
    return None if reads_it else labels


def is_function_name(text: str) -> bool:
    """Whether this is "package.module:function" by its form."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def has_own_function(text: str) -> bool:
    """Whether this names a function of the user by its form, as a metric or as the decoder of a metric."""
    metric, _, decoder = text.partition(":")
    return is_function_name(text) or (metric in DECODED and is_function_name(decoder))


def _are_alike(labels: Sequence[Label | None]) -> bool:
    """Whether all are classes, or all rows of the same length."""
    return None not in labels and len({len(x) if isinstance(x, tuple) else None for x in labels}) == 1


def _may_be_tokens(array: Array) -> bool:
    return array.ndim == 2 and np.issubdtype(array.dtype, np.integer)


def _decoder_of(metric: str) -> tuple[str, Callable[..., Any]] | None:
    """The metric and the decoder that a text names; None if it is no metric over decoded answers."""
    name, colon, decoder = metric.partition(":")
    if name not in DECODED:
        return None
    if not colon:
        return name, DECODERS[DECODED[name].decoder]
    if decoder in DECODERS:
        return name, DECODERS[decoder]
    if is_function_name(decoder):
        return name, find_function(decoder, "metric")
    return None


def _described(name: str, function: Callable[..., Any], truth: Truth) -> TaskMetric:
    asked = _asked(f"metric {name}", function, ARGUMENTS)
    parameters = inspect.signature(function).parameters
    optional = tuple(each for each in OPTIONAL if each in parameters and each not in asked)
    return TaskMetric(name, function, asked, truth, optional)


def _asked(what: str, function: Callable[..., Any], known: Sequence[str]) -> tuple[str, ...]:
    """The parameters that a function has no default for. Raises UsageError for one that is not known."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    unknown = [each for each in needed if each not in known]
    if unknown or not needed:
        asked = f"asks for {', '.join(unknown)}" if unknown else "asks for nothing"
        raise UsageError(f"{what} {asked}; its parameters are some of {', '.join(known)}")
    return tuple(needed)
