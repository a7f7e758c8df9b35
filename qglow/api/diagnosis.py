"""Why an int8 model loses what it loses, and what was tried against it."""

from __future__ import annotations

from dataclasses import replace

from qglow.api.data import Data, Progress, start
from qglow.api.quantized import QuantizedModel
from qglow.api.reconstruction import CalibrationRuns, CalibrationSamples
from qglow.api.suggestions import try_changes
from qglow.core.errors import UsageError
from qglow.graph.graph import Node
from qglow.profiling.profile import Profile
from qglow.quantization.tensors import TensorRange
from qglow.recipe.schema import Recipe
from qglow.report.diagnosis import Diagnosis, NodeDiagnosis, Noise, with_errors
from qglow.report.layers import LayerReport
from qglow.report.tensors import counterpart
from qglow.toolchain import CompileOptions
from qglow.tuning.sensitivity import CLIPPING, ROUNDING, WEIGHTS, Sensitivity, sensitivity

RUNS = 16
"""On so many inputs, spread evenly over the data, single errors are put into the float model."""


def diagnose(
    model: QuantizedModel,
    data: Data,
    *,
    layers: LayerReport | None = None,
    profile: Profile | None = None,
    recipe: Recipe | None = None,
    select: str | None = None,
    samples: int | None = None,
    isa: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Where the error at a model's outputs comes from: nodes, and weights, rounding and clipping in each.

    Every error is put into the float model alone, on a few of the samples. layers: what `compare_layers`
    measured, to be told with it. profile: the one that the model was quantized with; then the most
    promising other calibrations and nodes in float are tried, each by quantizing again (weights rounded
    to nearest) and running all samples. Other options as for `compare`.

    Raises UsageError where a profile has no place, ProfileError where it is of another model, DataError
    for data that does not fit or is less than a batch.
    """
    if profile is not None and model.report is not None and model.report.given:
        raise UsageError(f"{model.source.path} came with its own parameters: a profile has no place")
    chosen = recipe or model.recipe
    options = CompileOptions(isa=isa, threads=threads)
    real, int8 = model.float_graph, model.graph
    runs = CalibrationRuns.of(real, chosen, CalibrationSamples(data, select, samples)).spread(RUNS)
    advance = start(progress, None)
    found = sensitivity(real, int8, runs, options, advance)
    nodes = tuple(with_errors(node, () if layers is None else layers.layers) for node in _nodes(model, found))
    result = Diagnosis(len(runs) * real.inputs[0].type.shape[0], nodes)
    if profile is None:
        return result
    opened = CalibrationRuns.of(real, chosen, CalibrationSamples(data, select, samples)).dataset
    tried = try_changes(model, profile, result, runs, opened, options, advance)
    return replace(result, tried=tried)


def _nodes(model: QuantizedModel, found: Sensitivity) -> list[NodeDiagnosis]:
    """Every node with noise of its own, in the order of the graph."""
    int8 = model.graph
    names = counterpart(model.float_graph, int8)
    tensors = {} if model.report is None else {tensor.value: tensor for tensor in model.report.tensors}
    noisy = {source.value for source in found.sources}
    return [
        _node(node, value.name, found, tensors.get(names.get(value.name, value.name)))
        for node in int8.nodes
        for value in node.outputs
        if value.name in noisy
    ]


def _node(node: Node, value: str, found: Sensitivity, tensor: TensorRange | None) -> NodeDiagnosis:
    noise = Noise(*(found.of(value, kind) for kind in (WEIGHTS, ROUNDING, CLIPPING)))
    channels = None if tensor is None else tensor.channels
    if channels is None:
        return NodeDiagnosis(node.name, node.operator.name, value, noise)
    return NodeDiagnosis(
        node.name,
        node.operator.name,
        value,
        noise,
        dead=channels.dead,
        outliers=channels.outliers,
        largest=channels.largest,
    )
