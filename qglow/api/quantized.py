"""An int8 model: run, compiled, exported, saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from qglow.api.keywords import (
    CustomOperatorKeywords,
    DeviceKeywords,
    IsaKeywords,
    RunKeywords,
    StageTextKeywords,
)
from qglow.api.options import CustomOperatorOptions, DeviceOptions, IsaOptions, RunOptions, StageTextOptions
from qglow.artefacts.directory import Measurements, load_parts, refresh_reports, report_of, save_parts
from qglow.artefacts.replay import Replay, open_dimensions, replay_model
from qglow.core.errors import ModelError, UnsupportedError, UsageError
from qglow.core.keywords import taking
from qglow.core.progress import Progress
from qglow.core.types import Array, Dimension, TensorType
from qglow.display.blocks import Section
from qglow.display.document import Document
from qglow.display.lines import brief, counted
from qglow.display.plain import to_plain
from qglow.display.shown import Shown
from qglow.graph.graph import Graph, typed_outputs, untyped_outputs
from qglow.graph.interpreter import interpret
from qglow.host.libraries import use_libraries
from qglow.profiling.profile import ModelReference
from qglow.quantization.report import QuantizationReport
from qglow.recipe.schema import Recipe
from qglow.report.comparison_result import Comparison
from qglow.report.diagnosis import Diagnosis
from qglow.report.explain import explain
from qglow.report.graph_frame import int8_frame
from qglow.report.layer_report import LayerReport
from qglow.report.parts import QuantizedParts, float_model
from qglow.report.quantization_sections import short_sections
from qglow.report.range_plot import draw_range
from qglow.report.report import model_facts
from qglow.report.sections import model_section
from qglow.report.stages import stage_text
from qglow.report.verdict import ModelVerdict, verdict_section
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import StreamingExecutable
from qglow.toolchain import CompileOptions, selected_program
from qglow.toolchain.bounded import Narrowed, ResizableModel, bounded_executable
from qglow.toolchain.bounded_inputs import Bounds, ProgramSizes, dimensions_of
from qglow.toolchain.bounded_program import BoundedExecutable
from qglow.toolchain.compilation import compile_known
from qglow.toolchain.device import DeviceMemory
from qglow.toolchain.files import write_bundle, write_graph, write_programs
from qglow.toolchain.given_models import ModelSource, model_place
from qglow.toolchain.growing import GrowingExecutable
from qglow.toolchain.kernel_tuning import KernelTuning, tune_kernels
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.loading import load_program_file
from qglow.toolchain.shape_choices import ShapeChoices, chosen_shapes
from qglow.toolchain.specialised import SpecialisedExecutable, fits

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from qglow.exporter import FiledModel


@taking(CustomOperatorOptions)
def load_quantized(
    directory: str | Path, model: ModelSource | None = None, **options: Unpack[CustomOperatorKeywords]
) -> QuantizedModel:
    """The model in a directory that `QuantizedModel.save` or `qglow quantize` wrote.

    model: the float model, if it is no longer where it was when it was quantized, or was given in memory; as
    for `load_model`. custom_ops: libraries of custom operators for its nodes in onnxruntime.

    Raises ArtefactError for a directory that is incomplete, damaged or of another version.
    """
    use_libraries(options["custom_ops"])
    parts = load_parts(Path(directory))
    if model is not None:
        parts = replace(parts, source=replace(parts.source, place=model_place(model)))
    return QuantizedModel(parts)


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedModel(Shown):
    """An int8 model with static shapes. Made by `Model.quantize` or `load_quantized`."""

    _parts: QuantizedParts

    def __repr__(self) -> str:
        report, about = self._parts.report, [brief(self._parts.info.file)]
        if report is not None:
            about.append(
                f"{counted(len(report.quantized), 'node')} in int8, {len(report.float_nodes)} in float"
            )
        about += [] if self.verdict is None else [str(self.verdict)]
        return f"QuantizedModel({'; '.join(about)})"

    def _sections(self) -> tuple[Section, ...]:
        verdict, report = self._parts.verdict, self._parts.report
        sections = [] if verdict is None else [verdict_section(verdict)]
        sections.append(model_section(self._parts.info.file, model_facts(self._parts.info)))
        return (*sections, *([] if report is None else short_sections(report)))

    def to_dict(self) -> dict[str, Any]:
        """Content of report.json: facts, recipe, quantization and verdict, for JSON."""
        plain: dict[str, Any] = to_plain(report_of(self._parts))
        return plain

    def to_frame(self) -> pandas.DataFrame:
        """One row for each node of the int8 graph: type, parameters, and the reason why it stays float.

        Raises UsageError if pandas is not installed.
        """
        return int8_frame(self._parts.int8, self._parts.report)

    def plot(self, value: str, axes: Axes | None = None) -> Axes:
        """Draw the histogram of an int8 value, and the range that its integers cover.

        value: its name, or that of the node that computes it. axes: where to draw (default: a new figure).
        Raises UsageError for a value that is not int8 or was not profiled, and if matplotlib is not
        installed.
        """
        return draw_range(self._parts.int8, self._parts.report, value, axes)

    @property
    def source(self) -> ModelReference:
        """The float model: `path` of its file, None where it was given in memory, and its `sha256`."""
        return self._parts.source

    @property
    def recipe(self) -> Recipe:
        """Every choice that made it, defaults included."""
        return self._parts.recipe

    @property
    def report(self) -> QuantizationReport | None:
        """Report of what was quantized, and what stayed float and why; None if it is not known."""
        return self._parts.report

    @property
    def verdict(self) -> ModelVerdict | None:
        """Verdict of the check that ended the quantization: is it as good as the float model?

        None where there was none: the model brought its own parameters, was made with `check=False`, or its
        directory has no report.
        """
        return self._parts.verdict

    @property
    def graph(self) -> Graph:
        """A copy of the int8 graph; constants share their data."""
        return self._parts.int8.copy()

    @property
    def float_graph(self) -> Graph:
        """A copy of the float graph that the int8 graph stands for, node by node.

        Channels are equalized in it where that was done.
        """
        return self._parts.real.copy()

    @property
    def dimensions(self) -> dict[str, tuple[Dimension, ...] | None]:
        """Dimensions of the inputs as the float model's file declares them, see `Model.dimensions`.

        Raises ModelError if the file leaves dimensions open, and is missing or has changed.
        """
        if self._parts.profile is None:
            return {name: tuple(shape) for name, shape in self._parts.shapes.items()}
        found = float_model(self._parts).dimensions
        return {name: None if sizes is None else tuple(sizes) for name, sizes in found.items()}

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return self._parts.inputs

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs with static types, in the model's order."""
        return typed_outputs(self._parts.int8)

    @property
    def untyped_outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose shapes data decides: calls give them, but they have no types."""
        return untyped_outputs(self._parts.int8)

    @taking(StageTextOptions, places=("isa",))
    def text(self, stage: str = "graph", **options: Unpack[StageTextKeywords]) -> str:
        """The int8 graph, or its "instructions", "llvm" or "asm", as text; see `Model.text`."""
        return stage_text(self._parts.int8, stage, options["isa"], measure=options["measure"])

    @taking(IsaOptions, places=("isa",))
    def explain(self, node: str, **options: Unpack[IsaKeywords]) -> Document:
        """Explain a node, named by itself or its result: its precision, parameters, rewrites and kernel.

        Raises UsageError for a name that is not there.
        """
        parts = self._parts
        log = () if parts.report is None else parts.report.log
        program = selected_program(parts.int8, options["isa"])
        return explain(
            node, parts.int8, program, log, parts.report, parts.real, parts.recipe, parts.diagnosis
        )

    def interpret(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the int8 model in numpy, slowly: outputs by name, for arrays of exactly the input types.

        Every int8 value has the bits that compiled code gives it. Raises UsageError for an input
        that is missing, unknown or of another type.
        """
        if self._parts.profile is None or fits(inputs, self._parts.inputs):
            return interpret(self._parts.int8, inputs)
        made = Replay(self._parts)(inputs)
        return interpret(made.graph, made.inputs)

    @overload
    def compile(
        self, *, states: None = None, bounds: Bounds | None = None, **options: Unpack[RunKeywords]
    ) -> Executable: ...

    @overload
    def compile(
        self, *, states: Mapping[str, str], bounds: Bounds | None = None, **options: Unpack[RunKeywords]
    ) -> StreamingExecutable: ...

    @taking(RunOptions, places=("isa", "threads"))
    def compile(
        self,
        *,
        states: Mapping[str, str] | None = None,
        bounds: Bounds | None = None,
        **options: Unpack[RunKeywords],
    ) -> Executable:
        """Compile for an instruction set (default: QGLOW_ISA, else the host's best).

        threads: how many may share a call (default: QGLOW_THREADS, else the physical cores that the
        process may use); results do not depend on it. Where the model's file leaves dimensions open, a call
        may have other shapes than the profile: they are compiled when first seen, for which the float
        model has to be there.
        states: inputs that the program keeps itself, each with the output of equal type that its next call
        reads there; see `StreamingExecutable`. bounds: largest sizes of open dimensions, all sizes up to
        which a few programs take, see `Model.compile`. Raises UsageError for an ISA that the host lacks, and
        for states of other names or types than the model has.
        """
        made = CompileOptions(**options)
        if bounds is not None:
            bounded = self._bounded(bounds, made)
            return bounded if states is None else GrowingExecutable(bounded, states)
        if states is None:
            return self._compiled(made)
        return StreamingExecutable(
            replace(self, _parts=replace(self._parts, ahead=None))._compiled(made), states
        )

    def _bounded(self, bounds: Bounds, options: CompileOptions) -> BoundedExecutable:
        return bounded_executable(self._resizable(bounds), options)

    def _resizable(self, bounds: Bounds, narrowed: Narrowed | None = None) -> ResizableModel:
        dimensions = dimensions_of(self._open_model().dimensions, self._parts.shapes, bounds)
        return replay_model(self._parts, dimensions, narrowed)

    def _open_model(self) -> LoadedModel:
        """The float model. Raises UsageError where its file leaves no dimensions open."""
        if self._parts.profile is None:
            raise UsageError("the model's file leaves no dimensions open that could have several sizes")
        return float_model(self._parts)

    def _chosen(self, shapes: ShapeChoices) -> tuple[ResizableModel, Sequence[ProgramSizes]]:
        """The model, and the sizes of its programs, for shapes that a caller names."""
        chosen = chosen_shapes(self._open_model().dimensions, {}, shapes)
        return replay_model(self._parts, chosen.dimensions), chosen.wanted

    def _compiled(self, options: CompileOptions) -> Executable:
        ahead = self._parts.ahead
        known = (
            compile_known(self._parts.int8, options) if ahead is None else load_program_file(ahead, options)
        )
        if self._parts.profile is None:
            return known
        dimensions = partial(open_dimensions, self._parts)
        return SpecialisedExecutable(Replay(self._parts), options, known, dimensions=dimensions)

    def _open_dimensions(self) -> dict[str, tuple[Dimension, ...]] | None:
        """Dimensions of inputs of several shapes; None without the float model, whose file tells them."""
        try:
            return open_dimensions(self._parts)
        except (ModelError, ImportError):
            return None

    @taking(IsaOptions)
    def save(
        self,
        directory: str | Path,
        *,
        comparison: Comparison | None = None,
        layers: LayerReport | None = None,
        data: str = "",
        shapes: ShapeChoices | None = None,
        **options: Unpack[IsaKeywords],
    ) -> tuple[str, ...]:
        """Write a directory with model.qglow, model.qdq.onnx, reports and all that `load_quantized` needs.

        A reader never sees it half-written: the manifest, with a digest of every file, comes last.
        `comparison` and `layers`, measured over `data`, go into the reports. `isa` is what
        model.qglow is compiled for first (default: QGLOW_ISA, else the host's best). shapes: those that it
        has programs for (default: the profile's), as for `save_program`. Files of an earlier model are
        replaced, others left alone. Returns sentences on what could not be had, such as a model.qdq.onnx for
        all shapes; they are in the reports too.

        Raises InputFileError if it cannot be written, UsageError for an ISA that the host lacks.
        """
        measured = Measurements(comparison, layers, data)
        ahead = None if shapes is None else self._chosen(shapes)
        return save_parts(self._parts, Path(directory), measured, options["isa"], ahead)

    def save_report(
        self,
        directory: str | Path,
        *,
        comparison: Comparison | None = None,
        layers: LayerReport | None = None,
        diagnosis: Diagnosis | None = None,
        data: str = "",
    ) -> None:
        """Write report.html, report.md and report.json alone, each whole or not at all.

        In the model's own directory, `explain` tells of the diagnosis from then on. Raises
        InputFileError if they cannot be written.
        """
        measured = Measurements(comparison, layers, data, diagnosis)
        refresh_reports(self._parts, Path(directory), measured)

    @taking(IsaOptions, places=("isa",))
    def tune_kernels(
        self, *, progress: Progress | None = None, **options: Unpack[IsaKeywords]
    ) -> KernelTuning:
        """Measure kernels and their settings on this processor and keep the best in the user's cache.

        Everything that is compiled for this instruction set (default: QGLOW_ISA, else the host's best) then
        uses them where a layer has the same shape; no bit of a result changes. What was measured
        before is not measured again. `progress` is told of every kernel. Raises UsageError for an ISA
        that the host lacks, InputFileError if the cache cannot be written.
        """
        return tune_kernels(self._parts.int8, options["isa"], progress)

    @taking(IsaOptions, places=("isa",))
    def save_program(
        self, path: str | Path, *, shapes: ShapeChoices | None = None, **options: Unpack[IsaKeywords]
    ) -> tuple[str, ...]:
        """Compile and write one .qglow file, or the folder of a target that only writes bundles.

        isa: a target (default: as for `compile`). shapes: those that the file has programs for, as for
        `Model.save_program`. Returns sentences on ranges that became a program for each size. The file is
        written whole or not at all. Raises InputFileError, UsageError, and UnsupportedError for what the
        target cannot execute, and for ranges that no program takes.
        """
        if shapes is None:
            write_graph(Path(path), self._parts.int8, CompileOptions(**options))
            return ()
        return write_programs(Path(path), *self._chosen(shapes), CompileOptions(**options))

    @taking(DeviceOptions, places=("isa",))
    def save_bundle(
        self, path: str | Path, *, states: Mapping[str, str] | None = None, **options: Unpack[DeviceKeywords]
    ) -> tuple[str, ...]:
        """Write a C library with header, weights and self-test, which runs without qglow, into a folder.

        isa: a target that writes bundles (default: the best that this processor runs); `list_targets` tells.
        The folder is new or empty, and is written whole or not at all. The same model gives the same bytes.
        max_arena, max_flash: sizes such as "64K" that memory, and code and weights together, may not exceed.
        Where they would, the fastest form that does not is written, with the same bits; returns sentences on
        what was done. threads: of the calling program, for which the bundle has parts that these run.
        states: inputs that the caller hands over as states, each with the output that the next run reads
        there; a run replaces them. Raises MemoryLimitError where no form fits, InputFileError, UsageError,
        also for states that do not fit, and UnsupportedError for what the target cannot execute.
        """
        memory = DeviceMemory.of(options["max_arena"], options["max_flash"])
        place, isa, threads = Path(path), options["isa"], options["threads"]
        return write_bundle(place, self._parts.int8, isa, memory, threads, states)

    def export_qdq(
        self, path: str | Path, activations: str | None = None, *, bound_shapes: bool = False
    ) -> None:
        """Write the model as standard ONNX with QuantizeLinear and DequantizeLinear, whole or not at all.

        activations: "uint8" (what onnxruntime runs fastest on x86) or "int8" (default: the recipe's
        activation_type). Dimensions that the float model leaves open stay open, for which its file has to be
        there; with `bound_shapes` they are those of the profile. Raises InputFileError, UsageError for
        another name, and UnsupportedError if no single ONNX model stands for all shapes. Constants of more
        than 2 GB go to a second file, whose name ends in .data.
        """
        self._qdq_files(activations, bound_shapes, Path(path).name).write(Path(path))

    def qdq_bytes(self, activations: str | None = None, *, bound_shapes: bool = False) -> bytes:
        """Bytes of the file that `export_qdq` would write. Raises UnsupportedError where these are two."""
        return self._qdq_files(activations, bound_shapes).single()

    def _qdq_files(
        self, activations: str | None, bound_shapes: bool, name: str = "model.qdq.onnx"
    ) -> FiledModel:
        from qglow.artefacts.open_export import open_qdq_model  # needs onnx

        if bound_shapes:
            return self._parts.qdq_files(activations, name)
        model = open_qdq_model(self._parts, activations, name)
        if model.refusal:
            raise UnsupportedError(
                f"no single ONNX model stands for all shapes: {model.refusal}; "
                "ask for one of the profile's (`bound_shapes`)"
            )
        return model.files
