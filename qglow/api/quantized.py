"""An int8 model: run, compiled, exported, saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from qglow.api.stages import stage_text
from qglow.core.errors import UsageError
from qglow.core.types import Array, TensorType
from qglow.exporter import export_qdq
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.profiling.profile import ModelReference
from qglow.quantization.report import QuantizationReport
from qglow.recipe.schema import Recipe
from qglow.report.report import ModelInfo
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from qglow.toolchain.artefacts import write_artefact


@dataclass(frozen=True, eq=False)
class QuantizedModel:
    """An int8 model with static shapes. Made by `Model.quantize` or `load_quantized`.

    source: the float model's file and digest. info: about that model, for reports. recipe: every
    choice that made it. report: what was quantized, what stayed float and why; None for a model
    from `load_quantized`, whose directory has it as report.json.
    """

    source: ModelReference
    info: ModelInfo
    recipe: Recipe
    report: QuantizationReport | None = field(repr=False)
    _graph: Graph = field(repr=False)
    _float_graph: Graph = field(repr=False)

    @property
    def graph(self) -> Graph:
        """A copy of the int8 graph; constants share their data."""
        return self._graph.copy()

    @property
    def float_graph(self) -> Graph:
        """A copy of the float graph that the int8 graph stands for, node by node.

        Channels are equalized in it where that was done.
        """
        return self._float_graph.copy()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return {value.name: value.type for value in self._graph.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs, in the model's order."""
        return {value.name: value.type for value in self._graph.outputs}

    def text(self, stage: str = "graph", isa: str | None = None) -> str:
        """The int8 graph, or its "instructions", "llvm" or "asm", as text; see `Model.text`."""
        return stage_text(self._graph, stage, isa)

    def interpret(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the int8 model in numpy, slowly: outputs by name, for arrays of exactly the input types.

        Every int8 value has the bits that compiled code gives it. Raises UsageError for an input
        that is missing, unknown or of another type.
        """
        return Interpreter(self._graph).run(inputs)

    def compile(self, isa: str | None = None, threads: int = 1) -> Executable:
        """Compile for an instruction set (default: QGLOW_ISA, else the host's best).

        Raises UsageError for an ISA that the host lacks.
        """
        return compile_graph(self._graph, CompileOptions(isa=isa, threads=threads))

    def save_program(self, path: str | Path, isa: str | None = None) -> None:
        """Compile and write one model.qglow, whole or not at all. Raises InputFileError, UsageError."""
        options = CompileOptions(isa=isa)
        write_artefact(Path(path), lower_graph(self._graph, options), options)

    def export_qdq(self, path: str | Path, activations: str = "uint8") -> None:
        """Write the model as standard ONNX with QuantizeLinear and DequantizeLinear, whole or not at all.

        activations: "uint8" (what onnxruntime runs fastest on x86) or "int8".
        """
        export_qdq(self._graph, Path(path), _activations(activations))

    def qdq_bytes(self, activations: str = "uint8") -> bytes:
        """What `export_qdq` would write."""
        model: bytes = export_qdq(self._graph, None, _activations(activations)).SerializeToString()
        return model


def _activations(name: str) -> Literal["uint8", "int8"]:
    if name == "uint8":
        return "uint8"
    if name == "int8":
        return "int8"
    raise UsageError(f"activations {name!r} are not uint8 or int8")
