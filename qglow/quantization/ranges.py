"""Real range of every value, and the SQNR that it would lose with another range."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import ProfileError
from qglow.core.types import ElementType, Quantization
from qglow.graph.graph import Value
from qglow.numerics.schema import Schema, choose_parameters
from qglow.profiling.distribution import Distribution
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.calibration import SAFE, Range, chosen_range
from qglow.quantization.choices import Choices
from qglow.quantization.squared_error import Function, expected_squared_error
from qglow.recipe.choices import Calibration

EVERYTHING = Calibration("minmax")


def fused_bounds(value: Value) -> Range:
    """The real bounds that the value's producer applies: those of a fused or single Relu or Clip."""
    return (-math.inf, math.inf) if value.producer is None else value.producer.operator.bounds


def only_function(value: Value) -> Function | None:
    """Return the function of one variable that alone reads the value; None if other operators read it."""
    users = value.users()
    operators = {user.operator for user in users}
    if len(operators) != 1 or any(len(user.inputs) != 1 for user in users):
        return None
    (operator,) = operators
    return operator.reference64 if operator.is_tabulated else None


@dataclass(frozen=True)
class Ranges:
    """Ranges from a profile by value name, under the calibration and schema chosen for each value.

    results: names of the graph's outputs, which the caller of the program reads too. instead: by name of the
    values that got another calibration than the chosen one, why; it fills as ranges are asked for.
    """

    statistics: Mapping[str, ValueProfile]
    choices: Choices
    results: frozenset[str] = frozenset()
    instead: dict[str, str] = field(default_factory=dict)

    def of(self, value: Value, wide: bool = False) -> Range:
        """Return the range that integers shall cover. Raises ProfileError for a value without statistics.

        wide: for int16, whose steps are so fine that it does not pay to clip anything that was seen.
        """
        if value.data is not None:
            data = np.asarray(value.data, np.float32)
            return min(float(data.min(initial=0.0)), 0.0), max(float(data.max(initial=0.0)), 0.0)
        if not value.type.size:
            return 0.0, 0.0
        profile = self._profile(value)
        choice = self.choices.of_value(value)
        function = None if value.name in self.results else only_function(value)
        bounds = fused_bounds(value)
        given = value.producer is None
        calibration = EVERYTHING if wide else choice.calibration
        found = chosen_range(profile, calibration, choice.schema, *bounds, function=function, given=given)
        if found.instead:
            self.instead[value.name] = found.instead
        return found.bounds

    def calibration(self, value: Value) -> Calibration:
        """The calibration that gave the value its int8 range, once that is chosen."""
        return Calibration(SAFE) if value.name in self.instead else self.choices.of_value(value).calibration

    def schema(self, value: Value) -> Schema:
        """The schema chosen for a value."""
        return self.choices.of_value(value).schema

    def parameters(self, bounds: Range, schema: Schema, wide: bool = False) -> Quantization:
        """Scale and zero point of a range, of int8 or of int16."""
        return choose_parameters(*bounds, schema, ElementType.INT16 if wide else ElementType.INT8)

    def loss(self, value: Value, own: Range, other: Range, wide: bool = False) -> float:
        """Loss of SQNR in dB if the value has the range `other` in place of `own`."""
        if own == other:
            return 0.0
        schema = self.schema(value)
        scales = self.parameters(own, schema, wide).scale, self.parameters(other, schema, wide).scale
        coarser = 20.0 * math.log10(scales[1] / scales[0])
        if wide or value.is_constant or not value.type.size or not self._profile(value).total:
            return coarser
        distribution = Distribution.of(self._profile(value))
        low, high = np.array([own[0], other[0]]), np.array([own[1], other[1]])
        errors = expected_squared_error(distribution, low, high, schema)
        if errors[0] <= 0.0 or errors[1] <= 0.0:
            return coarser
        return float(10.0 * np.log10(errors[1] / errors[0]))

    def _profile(self, value: Value) -> ValueProfile:
        found = self.statistics.get(value.name)
        if found is None or not (found.total or math.isfinite(found.low)):
            raise ProfileError(
                f"the profile has no statistics of value '{value.name}'; profile this model again, over data"
            )
        return found
