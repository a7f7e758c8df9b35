"""Quantization by a profile that looks at the calibration samples again where that tells more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qglow.api.data import Data
from qglow.api.reconstruction import CalibrationRuns, CalibrationSamples
from qglow.core.errors import UsageError
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.options import QuantizationOptions
from qglow.quantization.pipeline import QuantizedGraph, quantize_with
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions
from qglow.toolchain.engine import CompiledEngine

_Seen = Mapping[str, ValueProfile]


@dataclass(frozen=True)
class Quantizer:
    """Makes int8 graphs of one float graph from its profile: `statistics` by value name over `samples`.

    Of values whose channels were scaled or split there are only the ranges of their channels to choose
    parameters from, unless a recipe wants them profiled again over `calibration`.
    """

    graph: Graph
    statistics: Mapping[str, ValueProfile]
    samples: int
    calibration: Data | CalibrationSamples | None = None
    options: CompileOptions = field(default_factory=CompileOptions)
    _seen: dict[tuple[str, tuple[str, ...]], _Seen] = field(default_factory=dict)

    def __call__(self, recipe: Recipe) -> QuantizedGraph:
        """By the choices of a recipe, but for the rounding of weights and the effort.

        Raises what `quantize_with` does, UsageError where samples are needed and there are none, and
        DataError where they do not fit the model.
        """
        chosen = QuantizationOptions.of(recipe)
        result = quantize_with(self.graph, dict(self.statistics), self.samples, chosen)
        if not recipe.profile_again:
            return result
        if self.calibration is None:
            raise UsageError(
                "profile_again looks at the calibration samples: give them with --calibration-data, "
                "or choose --no-profile-again"
            )
        if not result.rescaled:
            return result
        key = fingerprint(result.source), result.rescaled
        if key not in self._seen:
            self._seen[key] = self._profile(result, recipe, self.calibration)
        statistics, seen = dict(self.statistics), self._seen[key]
        return quantize_with(self.graph, statistics, self.samples, chosen, seen_again=seen)

    def _profile(
        self, result: QuantizedGraph, recipe: Recipe, calibration: Data | CalibrationSamples
    ) -> _Seen:
        engine = CompiledEngine(lambda batch: result.source, self.options, result.rescaled)
        for inputs in CalibrationRuns.of(result.source, recipe, calibration):
            engine.run(inputs)
        return engine.collect()
