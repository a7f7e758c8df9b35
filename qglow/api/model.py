"""A float model: loaded, run, compiled, profiled, quantized."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from qglow.api.clusters import jobs_at
from qglow.api.keywords import (
    DeviceKeywords,
    IsaKeywords,
    ProfileKeywords,
    QuantizeKeywords,
    RunKeywords,
    StageTextKeywords,
)
from qglow.api.options import (
    DeviceOptions,
    Int8Options,
    IsaOptions,
    ProfileOptions,
    RunOptions,
    StageTextOptions,
)
from qglow.api.quantized import QuantizedModel
from qglow.core.errors import UsageError
from qglow.core.interruption import Interrupted
from qglow.core.keywords import taking
from qglow.core.model_place import IN_MEMORY
from qglow.core.passes import LogEntry
from qglow.core.progress import Progress
from qglow.core.types import Array, Dimension, Shape, TensorType
from qglow.display.blocks import Paragraph, Section
from qglow.display.document import Document
from qglow.display.lines import brief, counted, interface, listed
from qglow.display.plain import to_plain
from qglow.display.plots import draw_bars
from qglow.display.shown import Shown
from qglow.generation.sizes import with_sizes
from qglow.graph.graph import Graph
from qglow.profiling.profile import Profile
from qglow.recipe.keywords import RecipeChoices
from qglow.recipe.schema import Recipe
from qglow.report.explain import explain
from qglow.report.graph_frame import graph_frame
from qglow.report.parts import model_info
from qglow.report.report import ModelInfo, model_facts
from qglow.report.sections import model_section
from qglow.report.stages import stage_text
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import StreamingExecutable
from qglow.toolchain import CompileOptions, selected_program
from qglow.toolchain.bounded import Narrowed, ResizableModel, bounded_executable
from qglow.toolchain.bounded_inputs import Bounds
from qglow.toolchain.calibration import CalibrationSamples
from qglow.toolchain.device import DeviceMemory
from qglow.toolchain.files import write_bundle, write_graph, write_programs
from qglow.toolchain.growing import GrowingExecutable
from qglow.toolchain.kernel_tuning import KernelTuning, tune_kernels
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.opened import (
    OpenedModel,
    compile_opened,
    declared_dimensions,
    in_any_shape,
    interpret_opened,
    resizable_in,
    resizable_to,
)
from qglow.toolchain.profiling import profile_free_model, profile_model
from qglow.toolchain.samples import Data
from qglow.toolchain.shape_choices import ShapeChoices
from qglow.toolchain.undecided import UndecidedModel
from qglow.tuning.effort import FAST
from qglow.tuning.quantize import QuantizeOptions, quantize_model

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Model(Shown):
    """A float model, its graph in canonical form. Made by `load_model`."""

    _opened: OpenedModel

    @property
    def _loaded(self) -> LoadedModel:
        """The model with its graph. Raises UndecidedError where values of inputs decide it."""
        if isinstance(self._opened, UndecidedModel):
            raise self._opened.refusal
        return self._opened

    def __repr__(self) -> str:
        opened = self._opened
        name = brief(self.path.name if self.path is not None else IN_MEMORY)
        if isinstance(opened, UndecidedModel):
            return f"Model({name!r}: {listed(map(brief, opened.names))}, {opened.note()})"
        nodes = counted(len(opened.graph.nodes), "node")
        return f"Model({name!r}: {nodes}, {interface(opened.inputs, opened.outputs)})"

    def _sections(self) -> tuple[Section, ...]:
        if isinstance(self._opened, UndecidedModel):
            return (Section("Model", (Paragraph(str(self._opened.refusal)),)),)
        kinds = Counter(node.operator.name for node in self._opened.graph.nodes)
        rows = [("nodes", listed((f"{count} {name}" for name, count in kinds.most_common()), most=12))]
        return (model_section(self.info.file, [*model_facts(self.info), *rows]),)

    def to_dict(self) -> dict[str, Any]:
        """Facts of the model for JSON: file, digest, types of inputs and outputs, notes, numbers of nodes.

        Raises UnboundError and UndecidedError where there is no one graph.
        """
        kinds = Counter(node.operator.name for node in self._loaded.graph.nodes)
        return {**to_plain(self.info), "nodes": dict(kinds)}

    def to_frame(self) -> pandas.DataFrame:
        """One row for each node of the canonical graph. Raises UsageError if pandas is not installed.

        Raises UnboundError and UndecidedError where there is no one graph.
        """
        return graph_frame(self._loaded.graph)

    def plot(self, axes: Axes | None = None, *, most: int = 20) -> Axes:
        """Draw how many nodes of each operator the canonical graph has, the most frequent first.

        most: how many operators. axes: where to draw (default: a new figure). Raises UsageError if matplotlib
        is not installed, UnboundError and UndecidedError where there is no one graph.
        """
        kinds = Counter(node.operator.name for node in self._loaded.graph.nodes).most_common(most)
        return draw_bars(axes, [name for name, _ in kinds], {"nodes": [count for _, count in kinds]}, "nodes")

    @property
    def path(self) -> Path | None:
        """The ONNX file; None for a model that was given in memory."""
        place = self._opened.place
        return place if isinstance(place, Path) else None

    @property
    def sha256(self) -> str:
        """The digest of the file's bytes."""
        return self._loaded.sha256

    @property
    def opset(self) -> int:
        """The version of the ONNX operator set that the file uses."""
        return self._loaded.opset

    @property
    def bound(self) -> tuple[str, ...]:
        """Sentences on what was bound without being asked for, and on inputs that decide shapes."""
        if isinstance(self._opened, UndecidedModel):
            return (self._opened.note(),)
        return self._loaded.bound

    @property
    def passes(self) -> str:
        """The pipeline that made the graph, as text."""
        return self._loaded.passes

    @property
    def log(self) -> tuple[LogEntry, ...]:
        """Log of what the passes did and declined to do."""
        return self._loaded.log

    @property
    def graph(self) -> Graph:
        """A copy of the canonical graph; constants share their data."""
        return self._loaded.graph.copy()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return self._opened.inputs

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs with static types, in the model's order."""
        return self._loaded.outputs

    @property
    def untyped_outputs(self) -> tuple[str, ...]:
        """Names of the outputs whose shapes data decides: calls give them, but they have no types."""
        return self._loaded.untyped_outputs

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of the inputs by name, the batch first."""
        return self._loaded.shapes

    @property
    def is_quantized(self) -> bool:
        """Whether the model quantizes its activations itself, so that `quantize` needs no profile."""
        return self._loaded.is_quantized

    @property
    def info(self) -> ModelInfo:
        """Facts of the model for a report."""
        return model_info(self._loaded)

    @taking(StageTextOptions, places=("isa",))
    def text(self, stage: str = "graph", **options: Unpack[StageTextKeywords]) -> str:
        """The float model as text: its "graph", or its "instructions", "llvm" or "asm".

        "instructions" is the program before kernels are selected or, where an ISA is named, with
        that ISA's kernels and the memory plan. "llvm" and "asm" are for the named ISA, which the
        host need not have. Raises UsageError for an unknown stage or ISA.
        """
        return stage_text(self._loaded.graph, stage, options["isa"], measure=options["measure"])

    @taking(IsaOptions, places=("isa",))
    def explain(self, node: str, **options: Unpack[IsaKeywords]) -> Document:
        """Explain a node, named by itself or its result: its rewrites and its kernel.

        isa: the target of the kernel (default: as for `compile`). Raises UsageError for a name that is not
        there and for an unknown ISA.
        """
        return explain(
            node, self._loaded.graph, selected_program(self._loaded.graph, options["isa"]), self.log
        )

    def interpret(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the float model in numpy, slowly: outputs by name, for arrays of the input types.

        Free dimensions take any size. Raises UsageError or DataError for an input that is missing, unknown or
        of another type or shape.
        """
        return interpret_opened(self._opened, inputs)

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
        """Compile the float model for an instruction set (default: QGLOW_ISA, else the host's best).

        threads: how many may share a call (default: QGLOW_THREADS, else the physical cores that the
        process may use); results do not depend on it. Where dimensions are free, other shapes than those
        of the model are compiled when a call has them. states: inputs that the program keeps itself, each
        with the output of equal type that its next call reads there; see `StreamingExecutable`.
        bounds: largest sizes of open dimensions by name, for programs that take all sizes up to them: a
        number, a list with one for each program, or a sum of other dimensions as text,
        `{"past": (256, 1024), "new": (1, 32), "total": "past + new"}`. States may grow then.
        Raises UsageError for an ISA that the host lacks, and for states and bounds of other names or types
        than the model has, UnsupportedError where a node needs to know a size before it runs.
        """
        made = CompileOptions(**options)
        if bounds is not None:
            bounded = bounded_executable(self._resizable(bounds), made)
            return bounded if states is None else GrowingExecutable(bounded, states)
        executable = compile_opened(self._opened, made)
        return executable if states is None else StreamingExecutable(executable, states)

    def _resizable(self, bounds: Bounds, narrowed: Narrowed | None = None) -> ResizableModel:
        return resizable_to(self._opened, bounds, narrowed)

    @taking(IsaOptions, places=("isa",))
    def tune_kernels(
        self, *, progress: Progress | None = None, **options: Unpack[IsaKeywords]
    ) -> KernelTuning:
        """Measure kernels and their settings on this processor and keep the best in the user's cache.

        Everything that is compiled for this instruction set (default: QGLOW_ISA, else the host's best) then
        uses them where a layer has the same shape; no bit of a result changes. What was measured
        before is not measured again. `progress` is as for `profile`, over kernels. Raises UsageError for an
        ISA that the host lacks, InputFileError if the cache cannot be written.
        """
        return tune_kernels(self._loaded.graph, options["isa"], progress)

    @taking(IsaOptions, places=("isa",))
    def save_program(
        self, path: str | Path, *, shapes: ShapeChoices | None = None, **options: Unpack[IsaKeywords]
    ) -> tuple[str, ...]:
        """Compile and write one .qglow file, or the folder of a target that only writes bundles.

        isa: a target (default: as for `compile`). shapes: those that the file has programs for, which share
        their weights: for each input a size for every axis, which may be a range, `{"ids": (1, "1..512")}`,
        or a list of such, one for each program. Returns sentences on ranges that became a program for each
        size. The file is written whole or not at all. Raises InputFileError, UsageError, and UnsupportedError
        for what the target cannot execute, and for ranges that no program takes.
        """
        if shapes is None:
            write_graph(Path(path), self._loaded.graph, CompileOptions(**options))
            return ()
        return write_programs(Path(path), *resizable_in(self._opened, shapes), CompileOptions(**options))

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
        return write_bundle(place, self._loaded.graph, isa, memory, threads, states)

    @property
    def dimensions(self) -> dict[str, tuple[Dimension, ...] | None]:
        """Dimensions of the inputs as the file declares them: numbers, symbols, or None for any size.

        None for an input without a shape.
        """
        return declared_dimensions(self._opened)

    def at(self, shapes: Mapping[str, Sequence[int]]) -> Model:
        """The same model with these shapes of inputs; values keep their names.

        Raises UsageError for shapes that do not fit.
        """
        return Model(in_any_shape(self._opened).at(shapes))

    def with_batch(self, batch: int) -> Model:
        """The same model with another batch size; values keep their names.

        Raises UsageError if the model's file fixes the batch.
        """
        return Model(self._loaded.with_batch(batch))

    @property
    def batch_size(self) -> int:
        """The common first dimension of the inputs; 1 if there is none."""
        return self._loaded.batch_size

    @taking(ProfileOptions)
    def profile(
        self,
        data: Data,
        *,
        recipe: Recipe | None = None,
        progress: Progress | None = None,
        **options: Unpack[ProfileKeywords],
    ) -> Profile:
        """Run the model over calibration data and collect statistics of every value.

        data: a directory of images, .npy, .npz, ONNX test data, "package.module:function", arrays by input
        name with samples along their first axis, one such array, a list, generator or loader of samples or
        batches, or a function that gives one.
        batch_size: samples a run, which changes nothing but speed and memory. engine: "compiled"
        or "interpreter". select, samples: which samples: a slice as text, "0:100", and how many of these.
        recipe: preprocessing and names of arrays. keep_samples: how many samples the profile keeps, 16 MB
        at most, for `quantize` to measure its result on; 0 for private data. isa, threads: as for `compile`.
        scheduler: address of a Dask scheduler, on whose workers the samples run; the profile is the same.
        progress: is given the number of samples (None if it is not known) and returns what is
        called with the number done since the last call.

        Raises DataError for data that does not fit the model, UsageError for wrong options and for a
        model that is quantized already, ClusterError where the cluster cannot do it.
        """
        samples = CalibrationSamples(data, options["select"], options["samples"])
        if isinstance(self._opened, UndecidedModel):
            make = functools.partial(profile_free_model, self._opened)
        else:
            make = functools.partial(profile_model, self._opened)
        with jobs_at(options["scheduler"], options["isa"]) as jobs:
            return make(
                samples,
                recipe=recipe,
                batch_size=options["batch_size"],
                engine=options["engine"],
                keep_samples=options["keep_samples"],
                options=CompileOptions(isa=options["isa"], threads=options["threads"]),
                progress=progress,
                jobs=jobs,
            )

    @taking(Int8Options, RecipeChoices, within={"recipe": Recipe})
    def quantize(
        self,
        profile: Profile | None = None,
        recipe: Recipe | None = None,
        *,
        check: bool = True,
        calibration_data: Data | CalibrationSamples | None = None,
        progress: Progress | None = None,
        interrupted: Interrupted | None = None,
        **options: Unpack[QuantizeKeywords],
    ) -> QuantizedModel:
        """Quantize to int8 with ranges from a profile, or with the parameters that the model itself has.

        Without a profile a model whose sizes are free is quantized for those of most samples, one of text
        without samples for a short text; its weights are the same for all lengths.
        A model with QuantizeLinear and DequantizeLinear, or operators on integers (`is_quantized`), takes
        no profile: its parameters are kept, and of the choices only keep_float, assert_all_quantized
        and io apply.
        `recipe` holds the choices (default: the recipe's defaults); keywords override single ones, by the
        same names and with values as in a recipe file, and `keep_float` adds to the recipe's. `RecipeChoices`
        describes each of them.
        effort: "fast", or "balanced" or "best", which measure for every value which calibration costs the
        outputs least, add that to the recipe as rules, and round weights by "gptq". repair: whether "fast"
        chooses calibrations, and leaves out what harms, by the outputs over the samples that the profile
        keeps, and adds that to the recipe; a calibration that is stated stays. With any effort, products
        that the profile saw too few inputs of measure their rows then. calibration_data: the
        samples of the profile, which effort, `rounding` other than "nearest" and `profile_again` look at.
        check: whether to run float and int8 over the samples that the profile keeps, for `verdict`.
        isa, threads: what the model is compiled for to run on
        them. scheduler: address of a Dask scheduler, on whose workers the efforts but "fast" try ranges.
        rounding_state: a file for layers that are rounded, from which the same call goes on. progress: told
        of what is done. interrupted: told what was being done when Ctrl-C ended an effort or rounding early,
        and the result has what was done until then; without it KeyboardInterrupt is raised.

        Raises ProfileError if the profile was taken of another model, UsageError for a wrong choice
        (a TypeError too where no choice has the name), and where a profile is missing or has no place,
        UnsupportedError with every float node where `assert_all_quantized` does not hold.
        """
        choices = {name: value for name, value in options.items() if name in RecipeChoices.__annotations__}
        chosen = (recipe or Recipe()).with_overrides(**choices)
        state = options["rounding_state"]
        work = functools.partial(
            QuantizeOptions,
            effort=options["effort"],
            check=check,
            repair=options["repair"],
            calibration=calibration_data,
            rounding_state=None if state is None else Path(state),
            code=CompileOptions(isa=options["isa"], threads=options["threads"]),
            progress=progress,
            interrupted=interrupted,
        )
        opened = self._opened
        if isinstance(opened, UndecidedModel):
            opened = with_sizes(opened, calibration_data, chosen, profile)
        if options["scheduler"] is not None and options["effort"] == FAST:
            raise UsageError(
                "the effort fast has nothing that a cluster helps with; leave the scheduler out, or choose "
                "`effort=balanced`",
                field="scheduler",
            )
        with jobs_at(options["scheduler"], options["isa"]) as jobs:
            return QuantizedModel(quantize_model(opened, profile, chosen, work(jobs=jobs)))
