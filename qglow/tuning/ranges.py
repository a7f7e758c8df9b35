"""For every activation the calibration whose range costs the outputs least.

A calibration judges a range by the tensor alone. What counts is what arrives at the outputs, so each
range that some calibration proposes is put into the float network alone, on real samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Value
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.report.tensors import counterpart
from qglow.toolchain import CompileOptions
from qglow.toolchain.observation import observe
from qglow.tuning.injection import Injection
from qglow.tuning.sensitivity import int8_values


@dataclass(frozen=True)
class RangeChoice:
    """A value of the float graph, and by calibration the noise at the outputs, relative to their power."""

    value: str
    noise: Mapping[str, float]

    @property
    def best(self) -> str:
        """The calibration with the least noise; of equal ones the first."""
        return min(self.noise, key=lambda name: self.noise[name])


def choose_ranges(
    float_graph: Graph,
    int8_graphs: Mapping[str, Graph],
    runs: Sequence[Mapping[str, Array]],
    options: CompileOptions | None = None,
    advance: Callable[[int], None] = lambda runs: None,
) -> list[RangeChoice]:
    """Compare the ranges in int8 graphs of one float graph, by name of the calibration that made each."""
    real = {value.name: value for value in float_graph.values() if not value.is_constant}
    proposed: dict[Value, dict[str, Quantization]] = {}
    for calibration, graph in int8_graphs.items():
        names = counterpart(float_graph, graph)
        for value in int8_values(graph):
            twin, kind = real.get(names.get(value.name, "")), value.type.quantization
            if twin is not None and kind is not None:
                proposed.setdefault(twin, {}).setdefault(calibration, kind)
    open_ones = {value: kinds for value, kinds in proposed.items() if len(set(kinds.values())) > 1}
    if not open_ones:
        return []
    injection = Injection(float_graph, list(open_ones), options)
    noise: dict[tuple[Value, Quantization], float] = {}
    signal = 0.0
    for inputs, found in zip(runs, observe(float_graph, list(open_ones), runs, options), strict=True):
        base = injection(inputs, {})
        signal += sum(float(np.sum(np.square(array, dtype=np.float64))) for array in base.values())
        for value, kinds in open_ones.items():
            for kind in set(kinds.values()):
                error = dequantize_by(quantize_by(found[value], kind), kind) - found[value]
                power = injection.distance(inputs, {value.name: error}, base)
                noise[value, kind] = noise.get((value, kind), 0.0) + power
        advance(1)
    return [
        RangeChoice(value.name, {name: noise[value, kind] / (signal or 1.0) for name, kind in kinds.items()})
        for value, kinds in open_ones.items()
    ]
