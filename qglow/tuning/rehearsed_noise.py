"""Noise at the outputs of a rehearsal, in two forms: as it is, and as recipes are compared by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph, Value
from qglow.metrics.classification import class_scores, classification_output
from qglow.tuning.output_noise import OutputNoise
from qglow.tuning.sensitivity import decibels

_LEAST_PROBABILITY = 1e-9
_NEARLY_ONE = 1e-3


@dataclass
class RehearsedNoise:
    """Noise at the outputs as they are (`plain`), and as recipes are compared by it (`even`).

    Class probabilities are compared by their logarithms: of a few samples nearly all have one probability
    close to 1, and the others would decide alone. steps: of outputs that are made of integers, by name; below
    half of one, probabilities are equal.
    """

    plain: OutputNoise = field(default_factory=OutputNoise)
    even: OutputNoise = field(default_factory=OutputNoise)
    steps: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def joined(parts: Iterable[RehearsedNoise]) -> RehearsedNoise:
        """The sums of all parts."""
        listed = list(parts)
        plain = OutputNoise.joined(part.plain for part in listed)
        return RehearsedNoise(plain, OutputNoise.joined(part.even for part in listed))

    @property
    def level(self) -> float:
        """The worst output in dB."""
        return decibels(self.even.worst)

    def add(self, given: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
        """Add the outputs of a run."""
        self.plain.add(given, expected)
        logarithmic = {name for name, array in expected.items() if _are_probabilities(array)}

        def comparable(arrays: Mapping[str, Array]) -> dict[str, Array]:
            return {n: self._logarithms(n, a) if n in logarithmic else a for n, a in arrays.items()}

        self.even.add(comparable(given), comparable(expected))

    def _logarithms(self, name: str, array: Array) -> Array:
        """Logarithms of probabilities without their mean, which are what a softmax made them of."""
        scores = class_scores(array).astype(np.float64)
        least = max(_LEAST_PROBABILITY, 0.5 * self.steps.get(name, 0.0))
        logarithms: Array = np.log(np.maximum(scores, least))
        logarithms -= logarithms.mean(axis=1, keepdims=True)
        return logarithms


def _are_probabilities(array: Array) -> bool:
    """Whether each sample has one distribution over classes."""
    if array.dtype.kind != "f" or not array.ndim or classification_output({"": array}, len(array)) is None:
        return False
    scores = class_scores(array)
    return bool(np.all(scores >= 0.0) and np.all(np.abs(scores.sum(axis=1) - 1.0) < _NEARLY_ONE))


def output_steps(graph: Graph) -> dict[str, float]:
    """Steps of the integers that outputs of an int8 graph are made of, by name; of others nothing."""
    sources = {value.name: _integers_of(value) for value in graph.outputs}
    return {
        name: max(value.type.quantization.scales)
        for name, value in sources.items()
        if value is not None and value.type.quantization is not None
    }


def _integers_of(value: Value) -> Value | None:
    """The quantized value that a value is, but for conversions and data movement; None for another."""
    if value.type.is_quantized:
        return value
    node = value.producer
    if node is None:
        return None
    kept = 0 if node.operator.conversion is not None else node.operator.kept_operand
    operand = None if kept is None else node.inputs[kept]
    return None if operand is None else _integers_of(operand)
