"""Rehearsal of one recipe on runs of the float model, with runs to choose on and runs to judge by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from qglow.core.types import Array, Quantization
from qglow.graph.fingerprint import fingerprint
from qglow.profiling.samples import Sample
from qglow.quantization.choices import Choices
from qglow.quantization.pipeline import QuantizedGraph, proposed_parameters
from qglow.quantization.value_noise import value_noise
from qglow.recipe.choices import Calibration
from qglow.recipe.schema import Recipe
from qglow.report.runner import RealInterface
from qglow.report.tensors import counterpart
from qglow.runtime.executable import Executable
from qglow.targets.registry import machine_for_estimates
from qglow.toolchain import lower_graph
from qglow.toolchain.artefacts import obtain_executable
from qglow.tuning.costliest import Group, costliest
from qglow.tuning.costs import multiply_adds, node_cycles
from qglow.tuning.quantizer import Quantizer
from qglow.tuning.rehearsal import Parameters, Rehearsal, rescaled_copies, rounded_values
from qglow.tuning.rehearsed_constants import Exchange
from qglow.tuning.rehearsed_noise import RehearsedNoise, output_steps
from qglow.tuning.self_check import FloatRuns, float_runs
from qglow.tuning.sensitivity import decibels

LIKELY_DB = 0.5
"""Gain on the runs to choose on, in dB, below which the decibel that a repair needs is not expected."""
LIKELY = 10.0 ** (-LIKELY_DB / 10.0)
"""The same as the share of the noise that is left."""
ENOUGH_TO_JUDGE = 8
"""Least number of runs for which one half chooses and the other half judges."""
_MOST_TO_CHOOSE = 4
"""Largest number of runs of that half: each change that is tried takes all of them."""
_MOST_COSTLY = 16
"""Largest number of groups of values that are told to cost the outputs most."""
_LOOKING = 4e10
"""Multiplications that looking for them may take, approximately."""
_PER_VALUE = 2
"""Trials for each value with which a search by halves reaches all of them."""
_ELEMENT = 40.0
"""Cost of rounding an element, in multiplications, approximately."""
_STEP = 2.5e5
"""Cost of a node beside its arithmetic, in multiplications: 25 microseconds, which is most of what small
nodes take, so that budgets are not overrun in graphs of a thousand of them."""
_CALL = 3000.0
"""Cycles of a call beside the kernels: `qglow bench` has 0.9 microseconds for a program of 170 cycles."""


class Stage:
    """The int8 form of a model by a recipe, rehearsed with its own weights, biases and parameters.

    Parameters alone do not tell what another recipe gives: equalization and the correction of biases look at
    the ranges too, so that each recipe has weights and biases of its own.
    """

    def __init__(
        self, recipe: Recipe, quantizer: Quantizer, runs: FloatRuns, others: Iterable[Stage] = ()
    ) -> None:
        """Quantize, to rehearse with the code of one of `others` where that fits.

        others: stages with the same quantizer and runs.
        """
        self.recipe = recipe
        self.result: QuantizedGraph = quantizer(recipe)
        self._quantizer = quantizer
        self._runs = runs
        self._identity = fingerprint(self.result.source), fingerprint(self.result.graph)
        known = list(others)
        self._equal = next((other for other in known if self.equals(other)), None)
        self._others = () if self._equal is not None else tuple(known)
        self._known: list[RehearsedNoise] = [] if self._equal is None else self._equal._known

    @staticmethod
    def first(recipe: Recipe, quantizer: Quantizer, samples: Sequence[Sample]) -> Stage:
        """The first stage: runs of the float graph over samples are made by the code of its rehearsal.

        Where int8 needs another float graph, that is compiled by itself.
        """
        stage = Stage(recipe, quantizer, FloatRuns(0, (), ()))
        code = stage.rehearsal.exact(stage.result.source, quantizer.graph)
        plain = None if code is None else partial(code, parameters={})
        stage._runs = float_runs(quantizer.graph, samples, quantizer.options, plain)
        return stage

    @property
    def runs(self) -> FloatRuns:
        """Runs of the float graph, which it is compared with."""
        return self._runs

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """The rehearsal, compiled when it is asked for."""
        if self._equal is not None:
            return self._equal.rehearsal
        others, self._others = self._others, ()
        graphs = self.result.source, self.result.graph
        return Rehearsal(*graphs, self._quantizer.options, [other.rehearsal for other in others])

    @cached_property
    def choices(self) -> Choices:
        """Choices of the recipe for each node."""
        return Choices.of(self._quantizer.graph, self.recipe)

    def equals(self, other: Stage) -> bool:
        """Whether both int8 forms compute the same, so that nothing tells them apart."""
        return self._identity == other._identity

    @cached_property
    def parameters(self) -> Parameters:
        """Parameters of the int8 graph, by name of the value of the float graph."""
        values = rounded_values(self.result.source, self.result.graph)
        kinds = {name: value.type.quantization for name, value in values.items()}
        return {name: kind for name, kind in kinds.items() if kind is not None}

    @cached_property
    def _steps(self) -> dict[str, float]:
        return output_steps(self.result.graph)

    @cached_property
    def noise(self) -> RehearsedNoise:
        """The noise over all runs."""
        return self.own.noise_on(range(len(self._runs.inputs)))

    @cached_property
    def program(self) -> Executable:
        """The compiled int8 graph."""
        if self._equal is not None:
            return self._equal.program
        options = self._quantizer.options
        return obtain_executable(lower_graph(self.result.graph, options), options)

    @property
    def program_if_made(self) -> Executable | None:
        """The compiled int8 graph, if something needed it before."""
        return self.program if "program" in self.__dict__ else None

    @cached_property
    def measured(self) -> RehearsedNoise:
        """The noise of the compiled int8 graph over all runs."""
        if self._equal is not None:
            return self._equal.measured
        graph, noise = self.result.graph, RehearsedNoise(steps=self._steps)
        kinds = ({v.name: v.type for v in graph.inputs}, {v.name: v.type for v in graph.outputs})
        interface = RealInterface(self.program, *kinds)
        for inputs, expected in zip(self._runs.inputs, self._runs.outputs, strict=True):
            noise.add(interface(inputs), expected)
        return noise

    @property
    def level(self) -> float:
        """Figure in dB to compare recipes by, higher is better."""
        return self.noise.level

    @property
    def glance(self) -> float:
        """The same over the runs to choose on, which need fewer rehearsals."""
        return self.own.noise_on(self.choosing).level

    @property
    def sqnr_db(self) -> float:
        """SQNR of the worst output, in dB."""
        return decibels(self.noise.plain.worst)

    @property
    def can_judge(self) -> bool:
        """Whether there are runs to judge by that did not choose."""
        return len(self._runs.inputs) >= ENOUGH_TO_JUDGE

    @property
    def own_noise(self) -> dict[str, float]:
        """Noise that rounding and clipping add to each value, relative to its power, by its histogram."""
        seen = value_noise(self.result.report.tensors, self._quantizer.statistics)
        return {each.value: each.noise for each in seen}

    @cached_property
    def cycles(self) -> float:
        """Estimated time of a run of the int8 graph, in cycles of one processor that is always the same.

        With the call, which is most of it where a network is very small.
        """
        return _CALL + math.fsum(node_cycles(self.result.graph, machine_for_estimates()).values())

    @cached_property
    def costliest(self) -> dict[Group, float]:
        """Values whose rounding costs the outputs most, the costliest first, as far as they could be found.

        Beside each group, which is mostly one value, stands the share of the noise that is left where it is
        not rounded. Where all runs cannot be afforded one chooses: few values at fault are so in every run.
        """
        names = [name for name in self.parameters if name in self.rehearsal.rounded]
        trials = math.floor(_LOOKING / self.cost)
        runs = self.choosing
        if trials < _PER_VALUE * len(names):
            trials, runs = trials * len(runs), runs[:1]

        def left(group: Group) -> float:
            others = {name: kind for name, kind in self.parameters.items() if name not in group}
            return RehearsedNoise.joined(self._again(run, others) for run in runs).even.total

        start = left(())
        found = costliest(names, start, left, trials, _MOST_COSTLY)
        return {group: rest / start for rest, group in found}

    @property
    def cost(self) -> float:
        """Cost of a rehearsal on the runs to choose on, in multiplications, approximately."""
        source = self.result.source
        rounded = (value for value in source.values() if value.name in self.rehearsal.rounded)
        work = multiply_adds(source) + _STEP * len(source.nodes)
        work += _ELEMENT * sum(value.type.size for value in rounded)
        return max(work * len(self.choosing), 1.0)

    @property
    def whole_cost(self) -> float:
        """The same of a rehearsal on all runs."""
        return self.cost * len(self._runs.inputs) / len(self.choosing)

    def proposed(self, names: Iterable[str]) -> list[Parameters]:
        """Return the parameters that each calibration would give under the recipe's rules."""
        made = self._quantizer
        kinds = [Calibration.parse(name) for name in names]
        proposed = proposed_parameters(
            made.graph, dict(made.statistics), made.samples, self.recipe, kinds, made.preparations
        )
        return [{**self._copies(parameters), **parameters} for parameters in proposed]

    def _copies(self, proposed: Parameters) -> Parameters:
        """Parameters of copies of values under a proposal: of the results that unify them, else as here."""
        source, graph = self.result.source, self.result.graph
        names, found = counterpart(source, graph), dict[str, Quantization]()
        for name, value in rescaled_copies(source, graph).items():
            unified = [node.output.name for node in value.users() if node.operator.unifies]
            known = [proposed[names[result]] for result in unified if names.get(result) in proposed]
            found[name] = known[0] if known else self.parameters[name]
        return found

    @cached_property
    def own(self) -> Proposal:
        """The stage's own parameters."""
        return Proposal(self.parameters, self._noise, len(self._runs.inputs), self._known)

    def proposals(self, names: Sequence[str]) -> dict[str, Proposal]:
        """Proposals of each calibration, by its name, rehearsed with the weights of this stage."""
        runs = len(self._runs.inputs)
        pairs = zip(names, self.proposed(names), strict=True)
        return {name: Proposal(parameters, self._noise, runs) for name, parameters in pairs}

    def chosen(self, parameters: Parameters) -> RehearsedNoise:
        """Measure the noise on the runs to choose on."""
        return RehearsedNoise.joined(self._again(run, parameters) for run in self.choosing)

    def tried(self, recipe: Recipe, runs: range) -> RehearsedNoise:
        """The noise by another recipe, of which nothing is kept."""
        other = Stage(recipe, replace(self._quantizer), self._runs, (self,))
        return RehearsedNoise.joined(other._again(run, other.parameters) for run in runs)

    def exchanged(self, exchange: Exchange, parameters: Parameters, runs: range) -> RehearsedNoise:
        """The noise with other constants and these parameters."""
        graphs = self.result.source, self.result.graph
        rehearsal = self.rehearsal.exchanged(*graphs, exchange)
        if rehearsal is None:
            rehearsal = Rehearsal(*graphs, self._quantizer.options, (self.rehearsal,), exchange)
        return RehearsedNoise.joined(self._again(run, parameters, rehearsal) for run in runs)

    def judged(self) -> RehearsedNoise:
        """The noise of the recipe on the runs to judge by; without such, on those to choose on."""
        runs = range(1, len(self._runs.inputs), 2) if self.can_judge else self.choosing
        return self.own.noise_on(runs)

    @property
    def choosing(self) -> range:
        """The runs to choose on."""
        count = len(self._runs.inputs)
        return range(0, count, 2)[:_MOST_TO_CHOOSE] if self.can_judge else range(count)

    def _noise(self, run: int, parameters: Parameters) -> RehearsedNoise:
        """The noise in a run that is rehearsed once."""
        return self._added(self.rehearsal(self._runs.inputs[run], parameters), run)

    def _again(self, run: int, parameters: Parameters, rehearsal: Rehearsal | None = None) -> RehearsedNoise:
        """The noise in a run that is rehearsed many times, with little differences."""
        given = (rehearsal or self.rehearsal)(self._runs.inputs[run], parameters, keep=True)
        return self._added(given, run)

    def _added(self, given: Mapping[str, Array], run: int) -> RehearsedNoise:
        noise = RehearsedNoise(steps=self._steps)
        noise.add(given, self._runs.outputs[run])
        return noise


@dataclass
class Proposal:
    """Parameters, and the noise in runs of a rehearsal with them; each run is rehearsed once.

    rehearse: the noise in a run with parameters. count: of all runs. known: the noise in the first of them.
    """

    parameters: Parameters
    rehearse: Callable[[int, Parameters], RehearsedNoise]
    count: int
    known: list[RehearsedNoise] = field(default_factory=list)

    def noise_on(self, runs: range) -> RehearsedNoise:
        """The noise over some of the runs."""
        while len(self.known) <= max(runs, default=-1):
            self.known.append(self.rehearse(len(self.known), self.parameters))
        return RehearsedNoise.joined(self.known[run] for run in runs)

    def level_on(self, count: int) -> float:
        """Figure in dB to compare by, higher is better, over the first few runs."""
        return self.noise_on(range(min(count, self.count))).level

    @property
    def level(self) -> float:
        """The same over all runs."""
        return self.level_on(self.count)
