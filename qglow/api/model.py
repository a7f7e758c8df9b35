"""A float model: loaded, run, compiled, profiled, quantized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from qglow.api.data import Data, Progress, open_samples, start
from qglow.api.directory import QuantizedParts
from qglow.api.effort import with_effort
from qglow.api.kernels import tune_kernels
from qglow.api.quantized import QuantizedModel
from qglow.api.quantizer import Quantizer
from qglow.api.reconstruction import CalibrationSamples, reconstruct
from qglow.api.stages import selected_program, stage_text
from qglow.core.errors import ModelError, UsageError
from qglow.core.passes import LogEntry, parse_pipeline
from qglow.core.types import Array, Shape, TensorType
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.graph.verifier import verify_graph
from qglow.importer import import_model
from qglow.passes import ALL_PASSES, canonical_pipeline
from qglow.profiling.engine import Engine, InterpreterEngine
from qglow.profiling.profile import ModelReference, Profile
from qglow.profiling.profiler import profile as run_profile
from qglow.quantization.given import carries_parameters
from qglow.quantization.imported import quantize_imported
from qglow.quantization.options import QuantizationOptions
from qglow.recipe.schema import Recipe
from qglow.report.document import Document
from qglow.report.explain import explain
from qglow.report.report import ModelInfo
from qglow.runtime.executable import Executable
from qglow.toolchain import CompiledEngine, CompileOptions, compile_graph, lower_graph
from qglow.toolchain.artefacts import write_artefact
from qglow.toolchain.kernel_tuning import KernelTuning

ENGINES = ("compiled", "interpreter")


def load_model(
    path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None, passes: str | None = None
) -> Model:
    """Load an ONNX file as a float model with static shapes.

    `shapes` maps input names to shapes; a symbolic first dimension that is left free becomes 1,
    which `Model.bound` reports. `passes` is a pipeline, such as "fold-constants,fold-batchnorm",
    to run over the graph instead of those that make it canonical.

    Raises ModelError for a damaged or invalid file, UnsupportedError that lists everything in it
    that is not supported, UsageError for shapes that do not fit.
    """
    path = Path(path)
    imported = import_model(path, shapes)
    pipeline = canonical_pipeline() if passes is None else parse_pipeline(passes, ALL_PASSES)
    graph = imported.graph
    log = pipeline.run(graph, verify_graph)
    bound = imported.bound_dimensions
    return Model(path, imported.digest, imported.opset, bound, str(pipeline), graph, tuple(log.entries))


@dataclass(frozen=True, eq=False)
class Model:
    """A float model with static shapes, its graph in canonical form. Made by `load_model`.

    path: the ONNX file. sha256: of its bytes. opset: of the file. bound: sentences on dimensions
    that were bound without being asked for. passes: the pipeline that made its graph. log: what its
    passes did and did not do.
    """

    path: Path
    sha256: str
    opset: int
    bound: tuple[str, ...]
    passes: str
    _graph: Graph = field(repr=False)
    log: tuple[LogEntry, ...] = field(default=(), repr=False)

    @property
    def graph(self) -> Graph:
        """A copy of the canonical graph; constants share their data."""
        return self._graph.copy()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Names and types of the inputs, in the model's order."""
        return {value.name: value.type for value in self._graph.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Names and types of the outputs, in the model's order."""
        return {value.name: value.type for value in self._graph.outputs}

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes of the inputs by name, the batch first."""
        return {name: kind.shape for name, kind in self.inputs.items()}

    @property
    def is_quantized(self) -> bool:
        """Whether the model quantizes its activations itself, so that `quantize` needs no profile."""
        return carries_parameters(self._graph)

    @property
    def info(self) -> ModelInfo:
        """What a report says of the model."""
        name = self.path.name
        return ModelInfo(
            self._graph.name, name, self.sha256, self.opset, self.inputs, self.outputs, self.bound
        )

    def text(self, stage: str = "graph", isa: str | None = None, *, measure: bool = False) -> str:
        """The float model as text: its "graph", or its "instructions", "llvm" or "asm".

        "instructions" is the program before kernels are selected or, where an ISA is named, with
        that ISA's kernels and the memory plan. "llvm" and "asm" are for the named ISA, which the
        host need not have. Raises UsageError for an unknown stage or ISA.
        """
        return stage_text(self._graph, stage, isa, measure=measure)

    def explain(self, node: str, isa: str | None = None) -> Document:
        """What became of a node, named by itself or its result: rewrites and kernel.

        Raises UsageError for a name that is not there.
        """
        return explain(node, self._graph, selected_program(self._graph, isa), self.log)

    def interpret(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Run the float model in numpy, slowly: outputs by name, for arrays of exactly the input types.

        Raises UsageError for an input that is missing, unknown or of another type.
        """
        return Interpreter(self._graph).run(inputs)

    def compile(self, isa: str | None = None, threads: int | None = None) -> Executable:
        """Compile the float model for an instruction set (default: QGLOW_ISA, else the host's best).

        threads: how many may share a call (default: QGLOW_THREADS, else the physical cores that the
        process may use); results do not depend on it. Raises UsageError for an ISA that the host lacks.
        """
        return compile_graph(self._graph, CompileOptions(isa=isa, threads=threads))

    def tune_kernels(self, isa: str | None = None, *, progress: Progress | None = None) -> KernelTuning:
        """Measure kernels and their settings on this processor and keep the best in the user's cache.

        Everything that is compiled for this instruction set (default: QGLOW_ISA, else the host's best) then
        uses them where a layer has the same shape; no bit of a result changes. What was measured
        before is not measured again. `progress` is told of every kernel. Raises UsageError for an ISA
        that the host lacks, InputFileError where the cache cannot be written.
        """
        return tune_kernels(self._graph, isa, progress)

    def save_program(self, path: str | Path, isa: str | None = None) -> None:
        """Compile and write one .qglow file, whole or not at all. Raises InputFileError, UsageError."""
        options = CompileOptions(isa=isa)
        write_artefact(Path(path), lower_graph(self._graph, options), options)

    def with_batch(self, batch: int) -> Model:
        """The same model with another batch size; values keep their names.

        Raises UsageError where the model's file fixes the batch.
        """
        if batch == self.batch_size:
            return self
        shapes = {name: (batch, *shape[1:]) for name, shape in self.shapes.items()}
        try:
            model = load_model(self.path, shapes, self.passes)
        except UsageError as error:
            raise UsageError(f"batch {batch} does not fit: {error}") from error
        if model.sha256 != self.sha256:
            raise ModelError(f"{self.path} has changed since it was loaded; load it again")
        return model

    @property
    def batch_size(self) -> int:
        """The common first dimension of the inputs. Raises UsageError where there is none."""
        sizes = {shape[0] if shape else None for shape in self.shapes.values()}
        if len(sizes) != 1 or None in sizes:
            shapes = ", ".join(f"'{name}' {list(shape)}" for name, shape in self.shapes.items())
            raise UsageError(f"the inputs have no common first dimension, the batch: {shapes}")
        return next(size for size in sizes if size is not None)

    def profile(
        self,
        data: Data,
        *,
        batch_size: int | None = None,
        engine: str = "compiled",
        select: str | None = None,
        samples: int | None = None,
        recipe: Recipe | None = None,
        isa: str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Profile:
        """Run the model over calibration data and count what every value looks like.

        data: a directory of images, .npy, .npz, ONNX test data, "package.module:function", or arrays
        by input name with samples along their first axis.
        batch_size: samples a run, which changes nothing but speed and memory. engine: "compiled"
        or "interpreter". select, samples: which samples, as `--select` and `--samples`.
        recipe: preprocessing and names of arrays. isa, threads: as for `compile`.
        progress: is given the number of samples (None where it is not known) and returns what is
        called with the number done since the last call.

        Raises DataError for data that does not fit the model, UsageError for wrong options and for a
        model that is quantized already.
        """
        if self.is_quantized:
            raise UsageError(f"{self.path} is quantized already: quantize takes it without a profile")
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"--batch-size {batch_size}: at least 1")
        base = self._canonical_batch()
        opened = open_samples(data, base.inputs, recipe=recipe, select=select, samples=samples)
        runner = base._engine(engine, CompileOptions(isa=isa, threads=threads))
        return run_profile(
            base._graph,
            opened,
            runner,
            model=ModelReference(self.path, self.sha256),
            batch_size=batch_size or base.batch_size,
            preprocessing=None if recipe is None else recipe.preprocessing,
            advance=start(progress, opened.size),
        )

    def quantize(
        self,
        profile: Profile | None = None,
        recipe: Recipe | None = None,
        *,
        schema: str | None = None,
        calibration: str | None = None,
        per_tensor: bool | None = None,
        keep_float: Sequence[str] = (),
        assert_all_quantized: bool | None = None,
        equalize: bool | None = None,
        smooth: bool | float | None = None,
        profile_again: bool | None = None,
        correct_bias: bool | None = None,
        io: str | None = None,
        rounding: str | None = None,
        weight_range: str | None = None,
        split_channels: float | None = None,
        group_size: int | None = None,
        rounding_budget: float | str | None = None,
        rounding_state: str | Path | None = None,
        effort: str = "fast",
        calibration_data: Data | CalibrationSamples | None = None,
        isa: str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> QuantizedModel:
        """An int8 model with ranges from a profile, or with the parameters that the model itself has.

        A model with QuantizeLinear and DequantizeLinear, or operators on integers (`is_quantized`), takes
        no profile: its parameters are kept, and of the choices only keep_float, assert_all_quantized
        and io apply.
        `recipe` holds the choices (default: the recipe's defaults); the other arguments override
        single ones, `keep_float` adds to the recipe's. schema: "asymmetric", "symmetric",
        "symmetric_with_uint8" or "symmetric_with_power2_scale". calibration: "auto", "minmax",
        "kl", "percentile:99.99" or "mse". per_tensor: one scale a weight tensor. keep_float: names of nodes
        or values, "re:REGEX", "op:OPERATOR". assert_all_quantized: refuse to leave a node in float.
        equalize, correct_bias: whether channels are scaled where that helps, and biases corrected. smooth:
        the same for channels of normalizations; a number is the exponent of SmoothQuant, 0 to 1.
        profile_again: histograms of what these scale, from calibration_data; else ranges of channels serve.
        io: "float", or "int8" for int8 inputs and outputs. rounding: of weights, to the "nearest" integer or
        by "gptq" or "adaround". weight_range: "max", or "mse" to clip weights where that costs less.
        split_channels: the share of channels that may be split where a few reach far beyond the others.
        group_size: how many inputs of a Gemm share a scale of weights, 0 for all of them.
        rounding_budget: seconds, or "10m", that rounding may take: layers left then keep what they have,
        which the report tells. rounding_state: a file for the layers that are done, from which the same call
        goes on. effort: "fast", or "balanced" or "best", which measure for every value which calibration
        costs the outputs least, add that to the recipe as rules, and round by "gptq". Both look at
        calibration_data, the samples of the profile, compile the model for it (isa, threads), and tell
        `progress` of what is done.

        Raises ProfileError where the profile was taken of another model, UsageError for a wrong
        choice, and where a profile is missing or has no place, UnsupportedError with every float node
        where `assert_all_quantized` does not hold.
        """
        chosen = (recipe or Recipe()).with_overrides(
            schema=schema,
            calibration=calibration,
            per_tensor=per_tensor,
            keep_float=(keep_float,) if isinstance(keep_float, str) else keep_float or None,
            assert_all_quantized=assert_all_quantized,
            equalize=equalize,
            smooth=smooth,
            profile_again=profile_again,
            correct_bias=correct_bias,
            io=io,
            rounding=rounding,
            weight_range=weight_range,
            split_channels=split_channels,
            group_size=group_size,
            rounding_budget=rounding_budget,
        )
        options = QuantizationOptions.of(chosen)
        if self.is_quantized:
            if profile is not None:
                raise UsageError(f"{self.path} is quantized already: it takes no profile")
            if effort != "fast" or chosen.rounding != "nearest":
                raise UsageError(f"{self.path} is quantized already: effort and rounding do not apply")
            if chosen.rounding_budget is not None or rounding_state is not None:
                raise UsageError(f"{self.path} is quantized already: its weights are not rounded")
            result = quantize_imported(self._graph, options)
        elif profile is None:
            raise UsageError(f"{self.path} has no quantization of its own: profile it, and give the profile")
        else:
            if chosen.preprocessing is None:
                # What the ranges were seen with is what later data needs too.
                chosen = replace(chosen, preprocessing=profile.preprocessing)
            statistics = profile.check_matches(self._canonical_batch()._graph)
            options_of_code = CompileOptions(isa=isa, threads=threads)
            quantizer = Quantizer(self._graph, statistics, profile.samples, calibration_data, options_of_code)
            chosen = with_effort(chosen, effort, quantizer, progress)
            place = None if rounding_state is None else Path(rounding_state)
            result = reconstruct(
                quantizer(chosen), chosen, calibration_data, options_of_code, progress, place
            )
        report = replace(result.report, log=(*self.log, *result.report.log))
        source = ModelReference(self.path, self.sha256)
        parts = QuantizedParts(source, self.info, chosen, report, result.graph, result.source)
        return QuantizedModel(parts)

    def _canonical_batch(self) -> Model:
        """This model with batch 1, or with its own where the file fixes that: profiles are keyed by it."""
        if self.batch_size == 1:
            return self
        try:
            return self.with_batch(1)
        except UsageError:
            return self

    def _engine(self, name: str, options: CompileOptions) -> Engine:
        def graph_for_batch(batch: int) -> Graph:
            return self.with_batch(batch)._graph

        if name not in ENGINES:
            raise UsageError(f"engine {name!r} is not one of {', '.join(ENGINES)}")
        if name == "interpreter":
            return InterpreterEngine(graph_for_batch)
        return CompiledEngine(graph_for_batch, options)
