"""Noise at the outputs of a rehearsal, in two forms: as it is, and as recipes are compared by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from qglow.core.types import Array
from qglow.graph.graph import Graph, Value
from qglow.metrics.probabilities import are_probabilities, centred_logarithms
from qglow.tuning.output_noise import OutputNoise
from qglow.tuning.sensitivity import decibels


@dataclass
class RehearsedNoise:
    """Noise at the outputs as they are (`plain`), and as recipes are compared by it (`even`).

    Class probabilities are compared by their logarithms, as the verdict does. steps: of outputs that are made
    of integers, by name.
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
        logarithmic = {name for name, array in expected.items() if are_probabilities(array)}

        def comparable(arrays: Mapping[str, Array]) -> dict[str, Array]:
            return {
                name: centred_logarithms(array, self.steps.get(name, 0.0)) if name in logarithmic else array
                for name, array in arrays.items()
            }

        self.even.add(comparable(given), comparable(expected))


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
