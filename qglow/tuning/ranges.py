"""Choice of the calibration of each activation, by the noise that its range causes at the outputs.

A calibration judges a range by the tensor alone, but the effect on the outputs is what matters. So the error
of each range that a calibration proposes is put into the float network alone, on real samples.

Extremes that a range clips are rare: a few samples decide. So the error in the tensor is computed for every
sample, which is cheap, and the network runs over the samples where that error differs most between ranges and
over some of the others, from which the effect on the rest is extrapolated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from qglow.core.jobs import HereJobs, Jobs, spread
from qglow.core.types import Array, Quantization
from qglow.graph.graph import Graph, Value, nested
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.report.tensors import counterpart
from qglow.toolchain import CompileOptions
from qglow.toolchain.observation import Observation, observe
from qglow.toolchain.spread import code_of_jobs
from qglow.tuning.injection import Injection
from qglow.tuning.inside import InsideError, InsideErrors, QuantizedChange
from qglow.tuning.sensitivity import int8_values

EXTREME_SHARE = 1 / 3
"""Share of the runs for a value that are taken where the errors of its ranges differ most."""


class RepeatedRuns(Protocol):
    """Inputs of runs, which can be gone through more than once."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Mapping[str, Array]]: ...


@dataclass(frozen=True)
class RangeChoice:
    """A value of the float graph, by name, and the noise at the outputs, over their power, by calibration."""

    value: str
    noise: Mapping[str, float]

    @property
    def best(self) -> str:
        """The calibration with the least noise; the first among equal ones."""
        return min(self.noise, key=lambda name: self.noise[name])


def choose_ranges(
    float_graph: Graph,
    int8_graphs: Mapping[str, Graph],
    runs: RepeatedRuns,
    options: CompileOptions | None = None,
    advance: Callable[[int], None] = lambda runs: None,
    samples: int | None = None,
    jobs: Jobs | None = None,
) -> list[RangeChoice]:
    """Compare the ranges in int8 graphs of one float graph, by name of the calibration that made each.

    Only values whose ranges differ are returned; those of regions come last, by their names behind the path
    of the region. samples: number of the runs over which the network runs for each value (default: all).
    `advance` is called with 1 twice for every run. jobs: where the network runs with errors (default: here).
    """
    most = len(runs) if samples is None else min(samples, len(runs))
    inside = _choices_inside(float_graph, int8_graphs, runs, options, most, jobs)
    open_ones = _proposed(float_graph, int8_graphs)
    if not open_ones:
        return inside
    ranges = {value: list(dict.fromkeys(kinds.values())) for value, kinds in open_ones.items()}
    errors, signal = _errors_of_tensors(float_graph, ranges, runs, options, advance)
    taken = {value: _Taken.of(energies, most) for value, energies in errors.items()}
    wanted = {index for chosen in taken.values() for index in chosen.indices}
    powers: dict[Value, dict[int, Sequence[float]]] = {value: {} for value in ranges}
    by_name = {value.name: value for value in ranges}
    followed = (
        (inputs, [value.name for value, chosen in taken.items() if index in chosen.indices])
        for index, inputs in _selected(runs, wanted, advance)
    )
    work = _Following(float_graph, {value.name: tuple(kinds) for value, kinds in ranges.items()}, options)
    for index, found in zip(sorted(wanted), spread(jobs or HereJobs(), work.on(jobs), followed), strict=True):
        for name, distances in found.items():
            powers[by_name[name]][index] = distances
    choices = []
    for value, kinds in open_ones.items():
        noise = taken[value].total(powers[value], errors[value]) / (signal or 1.0)
        by_kind = dict(zip(ranges[value], map(float, noise), strict=True))
        choices.append(RangeChoice(value.name, {name: by_kind[kind] for name, kind in kinds.items()}))
    return [*choices, *inside]


def _choices_inside(
    graph: Graph,
    int8_graphs: Mapping[str, Graph],
    runs: RepeatedRuns,
    options: CompileOptions | None,
    most: int,
    jobs: Jobs | None,
) -> list[RangeChoice]:
    """Compare the ranges of values in regions over at most so many runs, spread evenly."""
    regions = {name: dict(nested(int8)) for name, int8 in int8_graphs.items()}
    proposed = {
        (path, value.name): kinds
        for path, region in nested(graph)
        if path
        for value, kinds in _proposed(
            region, {name: inside[path] for name, inside in regions.items() if path in inside}
        ).items()
    }
    places = [(*place, kind) for place, kinds in proposed.items() for kind in dict.fromkeys(kinds.values())]
    if not places:
        return []
    work = _FollowingInside(graph, places, options if jobs is None else code_of_jobs(jobs, options))
    wanted = {round(index) for index in np.linspace(0, len(runs) - 1, most)}
    taken = (inputs for index, inputs in enumerate(runs) if index in wanted)
    found = list(spread(jobs or HereJobs(), work, taken))
    signal = sum(power for power, _ in found) or 1.0
    noise = np.sum([distances for _, distances in found], axis=0) / signal
    by_place = dict(zip(places, map(float, noise), strict=True))
    return [
        RangeChoice("".join(place), {name: by_place[(*place, kind)] for name, kind in kinds.items()})
        for place, kinds in proposed.items()
    ]


@dataclass(frozen=True)
class _FollowingInside:
    """Effects of ranges of values in regions, each a path, a name there and parameters, on the outputs.

    A job takes inputs; it returns what `InsideErrors.distances` does.
    """

    graph: Graph
    places: Sequence[tuple[str, str, Quantization]]
    options: CompileOptions | None

    def begin(self) -> Callable[[Mapping[str, Array]], tuple[float, list[float]]]:
        """Compile the network."""
        errors = [InsideError(path, name, QuantizedChange(kind)) for path, name, kind in self.places]
        return InsideErrors(self.graph, errors, self.options).distances


def _proposed(float_graph: Graph, int8_graphs: Mapping[str, Graph]) -> dict[Value, dict[str, Quantization]]:
    """Return the ranges by calibration of those values of the float graph whose ranges differ."""
    real = {value.name: value for value in float_graph.values() if not value.is_constant}
    proposed: dict[Value, dict[str, Quantization]] = {}
    for calibration, graph in int8_graphs.items():
        names = counterpart(float_graph, graph)
        for value in int8_values(graph):
            twin, kind = real.get(names.get(value.name, "")), value.type.quantization
            if twin is not None and kind is not None:
                proposed.setdefault(twin, {}).setdefault(calibration, kind)
    return {value: kinds for value, kinds in proposed.items() if len(set(kinds.values())) > 1}


def _errors_of_tensors(
    graph: Graph,
    ranges: Mapping[Value, Sequence[Quantization]],
    runs: RepeatedRuns,
    options: CompileOptions | None,
    advance: Callable[[int], None],
) -> tuple[dict[Value, Array], float]:
    """Squared errors in the tensors, float64[ranges, runs] by value, and the power of the outputs."""
    errors = {value: np.zeros((len(kinds), len(runs))) for value, kinds in ranges.items()}
    signal = 0.0
    watched = list(dict.fromkeys((*ranges, *graph.outputs)))
    for run, found in enumerate(observe(graph, watched, runs, options)):
        signal += sum(float(np.sum(np.square(found[v], dtype=np.float64))) for v in graph.outputs)
        for value, kinds in ranges.items():
            errors[value][:, run] = _squared_errors(found[value], kinds)
        advance(1)
    return errors, signal


def _squared_errors(array: Array, kinds: Sequence[Quantization]) -> list[float]:
    """Expected squared error of rounding, plus that of clipping, for each of the ranges."""
    bounds = [kind.real_range for kind in kinds]
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    beyond = array[(array < low) | (array > high)].astype(np.float64)
    found = []
    for kind, limits in zip(kinds, bounds, strict=True):
        cut = beyond - np.clip(beyond, *limits)
        found.append(float(np.sum(np.square(cut))) + array.size * kind.scale**2 / 12.0)
    return found


@dataclass(frozen=True)
class _Taken:
    """Indices of the runs for which the effect of errors at a value on the outputs is measured.

    extreme: where the errors of ranges differ most. spread: taken evenly from all others.
    """

    extreme: Collection[int]
    spread: Collection[int]

    @staticmethod
    def of(errors: Array, most: int) -> _Taken:
        """Choose at most `most` runs, by the errors in the tensor, float64[ranges, runs]."""
        runs = errors.shape[1]
        if most >= runs:
            return _Taken(range(runs), ())
        extreme = np.argsort(errors.min(axis=0) - errors.max(axis=0), kind="stable")
        extreme = extreme[: int(most * EXTREME_SHARE)]
        rest = np.setdiff1d(np.arange(runs), extreme)
        count = most - extreme.size
        return _Taken(set(extreme.tolist()), set(rest[np.arange(count) * rest.size // count].tolist()))

    @property
    def indices(self) -> set[int]:
        """Indices of both kinds."""
        return {*self.extreme, *self.spread}

    def total(self, powers: Mapping[int, Sequence[float]], errors: Array) -> Array:
        """Estimate the noise at the outputs over all runs, float64[ranges].

        powers: noise at the outputs of each range, by index of the chosen runs. errors: in the tensor,
        float64[ranges, runs]; the noise of runs that were not chosen is taken as proportional to them.
        """
        measured = (
            np.array([powers[index] for index in self.extreme]).reshape(-1, errors.shape[0]).sum(axis=0)
        )
        if not self.spread:
            return np.asarray(measured)
        followed = np.array([powers[index] for index in self.spread]).sum(axis=0)
        inside = errors[:, list(self.spread)].sum(axis=1)
        rest = np.delete(errors, list(self.extreme), axis=1).sum(axis=1)
        return np.asarray(measured + followed * rest / np.where(inside > 0.0, inside, 1.0))


def _selected(
    runs: RepeatedRuns, indices: Collection[int], advance: Callable[[int], None]
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """Yield the runs of these indices; `advance` is called with 1 for every run."""
    for index, inputs in enumerate(runs):
        advance(1)
        if index in indices:
            yield index, inputs


@dataclass(frozen=True)
class _Following:
    """Effects of ranges on the outputs of a float network.

    A job takes inputs and names of values; it returns, for each value, the square by which the error of each
    of its ranges moves the outputs.
    """

    graph: Graph
    ranges: Mapping[str, tuple[Quantization, ...]]
    options: CompileOptions | None

    def on(self, jobs: Jobs | None) -> _Following:
        """The same work for the target that jobs run."""
        return self if jobs is None else replace(self, options=code_of_jobs(jobs, self.options))

    def begin(self) -> Callable[[tuple[Mapping[str, Array], Sequence[str]]], dict[str, list[float]]]:
        """Compile the network."""
        values = {value.name: value for value in self.graph.values() if value.name in self.ranges}
        injection = Injection(self.graph, list(values.values()), self.options)
        observation = Observation(self.graph, list(values.values()), self.options)

        def follow(item: tuple[Mapping[str, Array], Sequence[str]]) -> dict[str, list[float]]:
            inputs, names = item
            run, seen = injection.run(inputs), observation(inputs)
            found = {}
            for name in names:
                real = seen[values[name]]
                rounded = (dequantize_by(quantize_by(real, kind), kind) for kind in self.ranges[name])
                found[name] = [run.distance(name, array - real) for array in rounded]
            return found

        return follow
