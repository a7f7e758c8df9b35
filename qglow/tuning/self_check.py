"""Check of an int8 graph at its outputs, on the samples that a profile keeps.

Both graphs run as qglow's own compiled programs, so that no other runtime is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qglow.core.batch import batch_of
from qglow.core.memory import release_after
from qglow.core.types import Array
from qglow.graph.cutting import cut
from qglow.graph.graph import Graph
from qglow.profiling.profile import Profile
from qglow.profiling.samples import Sample, batches
from qglow.quantization.report import constant_bytes
from qglow.report.output_errors import OutputErrorCounter, OutputErrors, StreamErrors
from qglow.report.parts import QuantizedParts
from qglow.report.ranked import RankedParts, before_ranking
from qglow.report.runner import RealInterface, filled
from qglow.report.score_axes import ScoreAxis, score_axes
from qglow.report.verdict import ModelVerdict, can_be_judged, measured_verdict, predicted_verdict
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from qglow.toolchain.artefacts import obtain_executable
from qglow.toolchain.loaded import LoadedModel
from qglow.tuning.noise_sources import noise_sources, predicted_sqnr_db, worst_values
from qglow.tuning.rehearsed_noise import output_steps
from qglow.tuning.remembered import Remembered, arrays_of
from qglow.tuning.stream_check import stream_errors

Runs = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A graph that is compiled: outputs by name for inputs by name."""


@dataclass(frozen=True)
class FloatRuns:
    """Runs of a float graph: inputs and outputs by name for each run, and the number of all samples.

    Where too few samples are left to fill the batch of the last run, copies of the last sample fill it.
    """

    samples: int
    inputs: Sequence[Mapping[str, Array]]
    outputs: Sequence[Mapping[str, Array]]

    def part(self, start: int, step: int) -> FloatRuns:
        """Return every `step`-th run from index `start`, such as one half of the runs with step 2."""
        inputs, outputs = self.inputs[start::step], self.outputs[start::step]
        return FloatRuns(-(-self.samples * len(inputs) // max(len(self.inputs), 1)), inputs, outputs)


def float_runs(
    graph: Graph,
    samples: Sequence[Sample],
    options: CompileOptions | None = None,
    program: Runs | None = None,
) -> FloatRuns:
    """Compile a float graph and run it once over samples, for `measure_outputs` to compare with.

    `samples` have no batch axis and fit the graph's inputs, as those of `Profile.kept` do. Without samples
    nothing is compiled and there are no runs. program: the compiled graph, if there is one already.
    """
    if not samples:
        return FloatRuns(0, (), ())
    inputs = float_inputs(graph, samples)
    program = program or compile_graph(graph, options)
    runs = FloatRuns(len(samples), inputs, [_copied(program(given)) for given in inputs])
    del program
    release_after(constant_bytes(graph))
    return runs


def float_inputs(graph: Graph, samples: Sequence[Sample]) -> list[dict[str, Array]]:
    """Inputs of a float graph for runs over samples, in its batch; the last run is filled with copies."""
    names = [value.name for value in graph.inputs]
    size = batch_of({value.name: value.type.shape for value in graph.inputs})
    return [
        {name: b.inputs[name] if b.whole else filled(b.inputs[name], size) for name in names}
        for b in batches(samples, size)
    ]


def with_ranks(
    graph: Graph, given: Sequence[str], samples: Sequence[Sample], options: CompileOptions | None = None
) -> Sequence[Sample]:
    """Samples with these ranks, values of a float graph that it computes of them, as inputs of their own.

    Where a run takes several samples, the first axis of each rank has them.
    """
    if not given or not samples:
        return samples
    part = cut(graph, given, ())
    runs = FloatRuns(len(samples), float_inputs(graph, samples), ())
    program = compile_graph(part, options)
    found = [_copied(program({v.name: inputs[v.name] for v in part.inputs})) for inputs in runs.inputs]
    size = batch_of({value.name: value.type.shape for value in graph.inputs})
    if size == 1 or samples[0].whole:
        pairs = zip(samples, runs.inputs, found, strict=True)
        return [replace(sample, inputs={**own, **ranks}, whole=True) for sample, own, ranks in pairs]
    rows = [{name: ranks[name][row] for name in given} for ranks in found for row in range(size)]
    return [replace(s, inputs={**s.inputs, **row}) for s, row in zip(samples, rows, strict=False)]


def measure_outputs(
    runs: FloatRuns,
    int8_graph: Graph,
    options: CompileOptions | None = None,
    scores: Mapping[str, ScoreAxis] | None = None,
) -> OutputErrors:
    """Compile an int8 graph, run it over the inputs of `runs`, and measure each output against the float one.

    The graph has the same inputs, outputs and batch as the float graph of the runs; inputs and outputs may
    be int8. scores: outputs that are scores of classes (default: those [N, classes]). `sqnr_db` of the
    result is the smallest SQNR of an output, in dB, and `outputs` has each of them.
    The result is the same on all processors with fused multiply-add, and always the same on any other one.
    """
    return program_errors(runs, int8_graph, compile_graph(int8_graph, options), scores)


def program_errors(
    runs: FloatRuns, int8_graph: Graph, executable: Executable, scores: Mapping[str, ScoreAxis] | None
) -> OutputErrors:
    """The same by the compiled program of the int8 graph."""
    program = _real_program(int8_graph, executable)
    counter = OutputErrorCounter(scores, output_steps(int8_graph))
    for inputs, expected in zip(runs.inputs, runs.outputs, strict=True):
        counter.add(program(inputs), expected)
    return counter.result(runs.samples)


def check_model(
    model: LoadedModel,
    profile: Profile,
    parts: QuantizedParts,
    options: CompileOptions | None = None,
    runs: FloatRuns | None = None,
    program: Executable | None = None,
    states: Mapping[str, str] | None = None,
) -> ModelVerdict:
    """Return a verdict on the int8 form of a float model, measured on the samples that its profile keeps.

    Without samples, or where all outputs are zero or empty on them, it is predicted from the histograms.
    runs: of the model on the first of these samples, which need not be made again if they are all. program:
    the compiled int8 form, if there is one already; one that keeps state is compiled anew. states: inputs
    that take an output of the call before, for which a stream is measured too.
    """
    sources = noise_sources(parts, profile.check_matches(model.with_profiled_batch().graph))
    worst = worst_values(sources)
    note = profile.kept_note or "The profile keeps no samples to measure on"
    if profile.kept:
        kept = set((states or {}).values())  # what is carried is no answer
        scores = {
            name: axis
            for name, axis in score_axes(model.graph, model.open_output_axes).items()
            if name not in kept
        }
        ranked = before_ranking(model.graph, parts.int8)
        if ranked is None:
            errors = _errors(model.graph, parts.int8, profile.kept, scores, options, runs, program)
        else:
            kept_ranks = with_ranks(model.graph, ranked.given, profile.kept, options)
            errors = _errors(ranked.real, ranked.int8, kept_ranks, scores, options)
        if can_be_judged(errors):
            stream = _stream(model, profile, parts, options, states, scores) if states else None
            told = _tail_note(parts.int8) if ranked is None else _ranking_note(ranked)
            notes = filter(None, (told, _state_note(profile.kept, states or {})))
            return replace(measured_verdict(errors, worst, stream), note=". ".join(notes))
        note = "All outputs are zero or empty on the samples that the profile keeps"
    if not parts.outputs:
        note = "The whole model runs in onnxruntime, so that nothing of it is int8"
    return predicted_verdict(predicted_sqnr_db(sources), worst, note)


def _errors(
    real: Graph,
    int8: Graph,
    kept: Sequence[Sample],
    scores: Mapping[str, ScoreAxis],
    options: CompileOptions | None,
    runs: FloatRuns | None = None,
    program: Executable | None = None,
) -> OutputErrors:
    """Errors of the outputs of an int8 graph on samples; runs, program: see `check_model`."""
    facts = [*arrays_of(kept), scores]
    remembered = Remembered.of("errors", [real, int8], facts, options or CompileOptions())
    errors = remembered.get(OutputErrors)
    if errors is None:
        if runs is None or runs.samples != len(kept):
            runs = float_runs(real, kept, options)
        if program is None or program.state:
            program = obtain_executable(lower_graph(int8, options), options)
        errors = program_errors(runs, int8, program, scores)
        remembered.keep(errors)
    return errors


def _stream(
    model: LoadedModel,
    profile: Profile,
    parts: QuantizedParts,
    options: CompileOptions | None,
    states: Mapping[str, str],
    scores: Mapping[str, ScoreAxis],
) -> StreamErrors:
    """Errors over a stream of the samples that the profile keeps, in their order."""
    facts = [*arrays_of(profile.kept), scores, states]
    remembered = Remembered.of("streams", [model.graph, parts.int8], facts, options or CompileOptions())
    errors = remembered.get(StreamErrors)
    if errors is None:
        program = _real_program(parts.int8, compile_graph(parts.int8, options))
        inputs = float_inputs(model.graph, profile.kept)
        steps = output_steps(parts.int8)
        errors = stream_errors(compile_graph(model.graph, options), program, inputs, states, scores, steps)
        remembered.keep(errors)
    return errors


def _real_program(int8_graph: Graph, executable: Executable) -> RealInterface:
    kinds = ({v.name: v.type for v in int8_graph.inputs}, {v.name: v.type for v in int8_graph.outputs})
    return RealInterface(executable, *kinds)


def _tail_note(graph: Graph) -> str:
    """A sentence on where outputs were measured that have other shapes for other data, or ""."""
    if graph.tail is None:
        return ""
    listed = ", ".join(f"'{name}'" for name in graph.tail.results)
    return f"Data decides the shape of {listed}: what they are computed from is compared instead"


def _state_note(kept: Sequence[Sample], states: Mapping[str, str]) -> str:
    """A sentence on states of which the profile has seen nothing but zeros, or ""."""
    empty = [name for name in states if not any(np.any(sample.inputs[name]) for sample in kept)]
    listed = ", ".join(f"'{name}'" for name in empty)
    return f"The samples have only zeros for {listed}: calibrate with states that occur" if empty else ""


def _ranking_note(parts: RankedParts) -> str:
    """A sentence on what is compared where a ranking chooses the elements of outputs, or what layers read."""
    listed = ", ".join(f"'{name}'" for name in parts.left_out)
    chosen = f"The model chooses the elements of {listed} by rank: what it chooses from is compared instead"
    given = "Layers work on what the model chooses by rank: int8 is compared on the float model's choice"
    return ". ".join([chosen] * bool(parts.left_out) + [given] * bool(parts.given))


def _copied(outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs in memory of their own, whatever the program does with its buffers."""
    return {name: np.array(array) for name, array in outputs.items()}
