"""Programs of a quantized model for samples of several shapes, as comparisons want them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from qglow.artefacts.replay import graph_at, open_dimensions, replay_model
from qglow.core.errors import UnsupportedError
from qglow.graph.missing import missing_inputs
from qglow.report.each_shape import OpenShapes
from qglow.report.parts import QuantizedParts
from qglow.report.runner import real_types
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions
from qglow.toolchain.bounded import bounded_executable
from qglow.toolchain.bounded_inputs import dimensions_of
from qglow.toolchain.samples import FreeInputs


def open_shapes(parts: QuantizedParts) -> OpenShapes | None:
    """The inputs of a model whose file leaves more than its batch open, and its programs in other shapes.

    None for other models. Raises as `open_dimensions`.
    """
    dimensions = open_dimensions(parts)
    if dimensions is None:
        return None
    elements = {name: kind.element for name, kind in real_types(parts.inputs).items()}

    def bounded(bounds: Mapping[str, int], options: CompileOptions) -> Executable:
        inputs = dimensions_of(dimensions, parts.shapes, bounds)
        return bounded_executable(replay_model(parts, inputs), options)

    return OpenShapes(
        FreeInputs.of(dimensions, elements, missing_inputs(parts.int8)),
        partial(graph_at, parts),
        dimensions,
        bounded,
        partial(_exported, parts),
    )


def _exported(parts: QuantizedParts) -> bytes:
    """The QDQ model in any shapes. Raises UnsupportedError where the export has those of the profile."""
    from qglow.artefacts.open_export import open_qdq_model  # needs onnx

    model = open_qdq_model(parts)
    if model.refusal:
        raise UnsupportedError(model.refusal)
    return model.files.single()
