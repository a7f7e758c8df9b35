"""Quantization from a profile, with a second look at the calibration samples if the recipe asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qglow.core.errors import UsageError
from qglow.core.jobs import Jobs
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph
from qglow.profiling.histogram import ValueProfile
from qglow.quantization.pipeline import QuantizedGraph, quantize_with
from qglow.quantization.preparations import FactorsOfRecipes, Preparations
from qglow.quantization.searched_factors import SearchedFactors
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationRuns, CalibrationSamples
from qglow.toolchain.engine import CompiledEngine
from qglow.toolchain.samples import Data

_Seen = Mapping[str, ValueProfile]


@dataclass(frozen=True)
class Quantizer:
    """Makes int8 graphs of one float graph from its profile: `statistics` by value name over `samples`.

    Where channels were scaled or split, the profile's histograms no longer apply: parameters come from the
    ranges of the channels, unless the recipe asks for new histograms from the `calibration` samples. jobs:
    where networks run over samples for an effort (default: here). searched: factors of channels that were
    found before, by this quantizer or one that it was made of.
    """

    graph: Graph
    statistics: Mapping[str, ValueProfile]
    samples: int
    calibration: Data | CalibrationSamples | None = None
    options: CompileOptions = field(default_factory=CompileOptions)
    _seen: dict[tuple[str, tuple[str, ...]], _Seen] = field(default_factory=dict)
    preparations: Preparations = field(default_factory=dict, init=False)
    factors: FactorsOfRecipes = field(default_factory=dict, init=False)
    jobs: Jobs | None = None
    searched: SearchedFactors = field(default_factory=dict)

    def __call__(self, recipe: Recipe) -> QuantizedGraph:
        """Quantize as a recipe says, except for the rounding of weights.

        Raises the errors of `quantize_with`, UsageError if samples are needed and there are none, and
        DataError if they do not fit the model.
        """
        result = quantize_with(
            self.graph,
            dict(self.statistics),
            self.samples,
            recipe,
            preparations=self.preparations,
            factors=self.factors,
            searched=self.searched,
        )
        if not recipe.profile_again:
            return result
        if self.calibration is None:
            raise UsageError(
                "profile_again looks at the calibration samples: give them with `calibration_data`, "
                "or choose `profile_again=false`",
                field="profile_again",
            )
        if not result.rescaled:
            return result
        key = fingerprint(result.source), result.rescaled
        if key not in self._seen:
            self._seen[key] = self._profile(result, recipe, self.calibration)
        statistics, seen = dict(self.statistics), self._seen[key]
        return quantize_with(self.graph, statistics, self.samples, recipe, seen_again=seen)

    def _profile(
        self, result: QuantizedGraph, recipe: Recipe, calibration: Data | CalibrationSamples
    ) -> _Seen:
        engine = CompiledEngine(lambda batch: result.source, self.options, result.rescaled)
        for inputs in CalibrationRuns.of(result.source, recipe, calibration):
            engine.run(inputs)
        return engine.collect()
