"""Diagnosis of an int8 model: places where it loses accuracy, and changes of its recipe that help."""

from __future__ import annotations

from dataclasses import replace

from qglow.core.errors import UsageError
from qglow.core.progress import Progress, start
from qglow.graph.graph import Node, nested
from qglow.profiling.profile import Profile
from qglow.quantization.tensors import TensorRange
from qglow.recipe.schema import Recipe
from qglow.report.diagnosis import Diagnosis, NodeDiagnosis, Noise, with_errors
from qglow.report.layer_report import LayerReport
from qglow.report.parts import QuantizedParts
from qglow.report.tensors import counterpart
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationRuns, CalibrationSamples
from qglow.tuning.sensitivity import CLIPPING, ROUNDING, WEIGHTS, Sensitivity, sensitivity
from qglow.tuning.suggestions import try_changes

RUNS = 16
"""Number of inputs, spread evenly over the data, on which single errors are injected into the float model."""


def diagnose_parts(
    parts: QuantizedParts,
    data: CalibrationSamples,
    *,
    layers: LayerReport | None = None,
    profile: Profile | None = None,
    recipe: Recipe | None = None,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """Attribute the error at a model's outputs to nodes, and in each to weights, rounding and clipping.

    Each error is injected alone into the float model, on at most `RUNS` batches. layers: errors of nodes to
    add to the result. profile: the profile that the model was quantized with; with it, changes of the recipe
    are tried on all samples. recipe: how the data is prepared (default: the model's own).

    Raises UsageError for a profile where the model has its own parameters, ProfileError for a profile of
    another model, DataError for data that does not fit or is smaller than a batch.
    """
    if profile is not None and parts.report is not None and parts.report.given:
        raise UsageError(f"{parts.source.required} came with its own parameters: a profile has no place")
    options = options or CompileOptions()
    samples = CalibrationRuns.of(parts.real, recipe or parts.recipe, data)
    runs = samples.spread(RUNS)
    advance = start(progress, None)
    found = sensitivity(parts.real, parts.int8, runs, options, advance)
    nodes = tuple(with_errors(node, () if layers is None else layers.layers) for node in _nodes(parts, found))
    result = Diagnosis(len(runs) * samples.batch, nodes)
    if profile is None:
        return result
    tried = try_changes(parts, profile, result, runs, samples.dataset, options, advance)
    return replace(result, tried=tried)


def _nodes(parts: QuantizedParts, found: Sensitivity) -> list[NodeDiagnosis]:
    """Return the diagnoses of all nodes that add noise, in graph order; those of regions come last."""
    tensors = {} if parts.report is None else {tensor.value: tensor for tensor in parts.report.tensors}
    noisy, real = {source.value for source in found.sources}, dict(nested(parts.real))
    nodes = []
    for path, graph in nested(parts.int8):
        names = counterpart(real[path], graph) if path in real else {}
        nodes += [
            _node(path + node.name, node, path + value.name, found, tensors.get(path + known))
            for node in graph.nodes
            for value in node.outputs
            if path + value.name in noisy
            for known in (names.get(value.name, value.name),)
        ]
    return nodes


def _node(name: str, node: Node, value: str, found: Sensitivity, tensor: TensorRange | None) -> NodeDiagnosis:
    noise = Noise(*(found.of(value, kind) for kind in (WEIGHTS, ROUNDING, CLIPPING)))
    channels = None if tensor is None else tensor.channels
    if channels is None:
        return NodeDiagnosis(name, node.operator.name, value, noise)
    return NodeDiagnosis(
        name,
        node.operator.name,
        value,
        noise,
        dead=channels.dead,
        outliers=channels.outliers,
        largest=channels.largest,
    )
