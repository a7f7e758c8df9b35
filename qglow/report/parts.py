"""Parts of a quantized model, in memory and in its directory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.core.errors import ModelError
from qglow.core.files import sha256_hex
from qglow.core.model_place import IN_MEMORY, ModelPlace, read_place
from qglow.core.types import Shape, TensorType
from qglow.graph.graph import Graph
from qglow.profiling.profile import ModelReference, Profile
from qglow.quantization.report import QuantizationReport
from qglow.recipe.schema import Recipe
from qglow.report.diagnosis import Diagnosis
from qglow.report.report import ModelInfo
from qglow.report.verdict import ModelVerdict
from qglow.toolchain.loaded import LoadedModel, read_model

if TYPE_CHECKING:
    from qglow.exporter import Activations, FiledModel


@dataclass(frozen=True)
class QuantizedParts:
    """An int8 graph and everything that is known of it.

    source: the float model and its digest. info: about that model, for reports. `real` is the
    float graph that `int8` stands for, node by node. diagnosis: of the directory's report, where it has one.
    verdict: of the check that ended the quantization; None where there was none. profile: gives the profile
    that the ranges are from, where the model's file leaves dimensions open. ahead: the directory's
    model.qglow where it has programs for several shapes.
    """

    source: ModelReference
    info: ModelInfo
    recipe: Recipe
    report: QuantizationReport | None
    int8: Graph
    real: Graph
    diagnosis: Diagnosis | None = None
    verdict: ModelVerdict | None = None
    profile: Callable[[], Profile] | None = None
    ahead: Path | None = None

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return {value.name: value.type for value in self.int8.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs of the graph, what a tail reads among them."""
        return {value.name: value.type for value in self.int8.outputs}

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of the inputs by name."""
        return {name: kind.shape for name, kind in self.inputs.items()}

    def qdq_model(self, activations: str | None = None) -> bytes:
        """The model with its own shapes as standard ONNX with QuantizeLinear and DequantizeLinear.

        activations: "uint8" or "int8" (default: the recipe's). Raises UsageError for another name, and
        UnsupportedError for a model that is too large for one file.
        """
        return self.qdq_files(activations).single()

    def qdq_files(self, activations: str | None = None, name: str = "model.qdq.onnx") -> FiledModel:
        """The files of `qdq_model`, of which the first is called `name`; one but for very large models."""
        from qglow.exporter import export_qdq, filed

        return filed(export_qdq(self.int8, None, self.activations(activations)), name)

    def activations(self, name: str | None) -> Activations:
        """The type of activations in ONNX of this name (default: the recipe's). Raises UsageError."""
        from qglow.exporter import activation_type

        return activation_type(self.recipe.activation_type if name is None else name)


def model_info(model: LoadedModel) -> ModelInfo:
    """Facts of a loaded model for a report."""
    name = model.place.name if isinstance(model.place, Path) else IN_MEMORY
    return ModelInfo(
        model.graph.name,
        name,
        model.sha256,
        model.opset,
        model.inputs,
        model.outputs,
        model.bound,
        model.untyped_outputs,
    )


def source_place(parts: QuantizedParts) -> ModelPlace:
    """The float model's file or bytes. Raises ModelError if it is missing or has changed."""
    place = parts.source.required
    try:
        digest = sha256_hex(read_place(place))
    except OSError as error:
        raise ModelError(
            f"cannot read the float model {place}: {error.strerror or error}; say where it is (`model`)"
        ) from error
    if digest != parts.source.sha256:
        raise ModelError(
            f"{place} has changed since it was quantized, or is another model; profile and quantize it again"
        )
    return place


def float_model(parts: QuantizedParts) -> LoadedModel:
    """The float model that was quantized, with the same shapes and values of inputs.

    Raises ModelError as `source_place`.
    """
    return read_model(source_place(parts), parts.shapes, values=parts.source.values)
