"""A model's own figure of merit: built in, or a function that the user names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array
from qglow.profiling.samples import Batch
from qglow.profiling.sources import find_function

ARGUMENTS = ("outputs", "labels", "keys", "expected")
"""What a metric may ask for, by the names of its parameters."""


@dataclass(frozen=True)
class TaskMetric:
    """A figure of all answers together, higher is better.

    function: takes some of ARGUMENTS by name and gives a number. outputs: real arrays by output name,
    samples along the first axis. labels: int64 [samples]. keys: the names of the samples, a list of str.
    expected: like outputs, of the float model in onnxruntime; a metric that asks for it says how close
    to float a program is, and so has no figure for float itself.
    """

    name: str
    function: Callable[..., float]
    wanted: tuple[str, ...]

    @property
    def is_relative(self) -> bool:
        """Whether it compares with the float model."""
        return "expected" in self.wanted

    def of(self, answers: Answers, expected: Answers) -> float:
        """The figure of a program. Raises UsageError where the function fails or gives no number."""
        if "labels" in self.wanted and None in answers.labels:
            key = answers.keys[answers.labels.index(None)]
            raise DataError(f"metric {self.name} needs labels; {key} has none")
        given = {
            "outputs": answers.outputs,
            "labels": lambda: np.array(answers.labels, np.int64),
            "keys": lambda: list(answers.keys),
            "expected": expected.outputs,
        }
        try:
            value = float(self.function(**{name: given[name]() for name in self.wanted}))
        except Exception as error:
            raise UsageError(f"metric {self.name} raised {type(error).__name__}: {error}") from error
        if math.isnan(value):
            raise UsageError(f"metric {self.name} is not a number on this data")
        return value


@dataclass
class Answers:
    """Outputs of one program for every sample so far, with names and labels of the samples."""

    keys: list[str] = field(default_factory=list)
    labels: list[int | None] = field(default_factory=list)
    pieces: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, batch: Batch, outputs: Mapping[str, Array]) -> None:
        """Keep the outputs of a batch."""
        self.keys += batch.keys
        self.labels += batch.labels
        for name, array in outputs.items():
            self.pieces.setdefault(name, []).append(np.array(array))

    def outputs(self) -> dict[str, Array]:
        """Every output, samples along its first axis."""
        return {name: np.concatenate(parts) for name, parts in self.pieces.items()}


@dataclass(frozen=True)
class MetricFigures:
    """Values of a metric by program; the float model has none where the metric compares with it."""

    name: str
    values: dict[str, float]

    def drop(self, subject: str, reference: str) -> float | None:
        """By how much the subject is worse; None where the reference has no figure."""
        return self.values[reference] - self.values[subject] if reference in self.values else None


def open_metric(metric: str | Callable[..., float]) -> TaskMetric:
    """A built-in metric by name, a function, or the one that "package.module:function" names.

    Raises UsageError for an unknown name, or a function with a parameter that no metric is given.
    """
    if callable(metric):
        return _described(getattr(metric, "__name__", "metric"), metric)
    if metric in BUILT_IN:
        return _described(metric, BUILT_IN[metric])
    if not is_function_name(metric):
        raise UsageError(
            f"no metric is called {metric!r}; there are {', '.join(BUILT_IN)} and module:function"
        )
    return _described(metric, find_function(metric, "--metric"))


def is_function_name(text: str) -> bool:
    """Whether this is "package.module:function" by its form."""
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _described(name: str, function: Callable[..., Any]) -> TaskMetric:
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    unknown = [each for each in needed if each not in ARGUMENTS]
    if unknown or not needed:
        asked = f"asks for {', '.join(unknown)}" if unknown else "asks for nothing"
        raise UsageError(f"metric {name} {asked}; its parameters are some of {', '.join(ARGUMENTS)}")
    return TaskMetric(name, function, tuple(needed))


def psnr(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Peak signal-to-noise ratio in dB of all outputs against float; the peak is float's range. Infinite
    where nothing differs."""
    peak = max(float(np.max(array)) - float(np.min(array)) for array in expected.values())
    squares = [np.square(np.float64(outputs[name]) - array).ravel() for name, array in expected.items()]
    error = float(np.mean(np.concatenate(squares)))
    return math.inf if error == 0.0 else 20.0 * math.log10(peak) - 10.0 * math.log10(error)


def miou(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Mean intersection over union, in per cent, of the best classes of the first output, of shape
    [N, classes, ...], with those of the float model. The mean is over the classes that either chooses
    anywhere. Raises ValueError for an output without positions."""
    name, reference = next(iter(expected.items()))
    if reference.ndim < 3:
        raise ValueError(f"output '{name}' of shape {list(reference.shape)} is not [N, classes, ...]")
    found, true = outputs[name].argmax(1).ravel(), reference.argmax(1).ravel()
    count = reference.shape[1]
    pairs = np.bincount(true * count + found, minlength=count * count).reshape(count, count)
    common = np.diag(pairs)
    union = pairs.sum(0) + pairs.sum(1) - common
    return 100.0 * float(np.mean(common[union > 0] / union[union > 0]))


BUILT_IN: dict[str, Callable[..., float]] = {"psnr": psnr, "miou": miou}
