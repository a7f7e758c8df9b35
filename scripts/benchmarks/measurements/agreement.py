"""How exactly qglow's programs agree: with onnxruntime in float, with themselves on every ISA, node by node.

For every model, over samples that did not calibrate it:
  float    largest difference of an output from onnxruntime float32, relative to max(range, max|y|),
           of the numpy interpreter and of the compiled program on every ISA (the worst);
  int8     elements of int8 tensors, of all values between input and output, that differ between the
           instruction interpreter and compiled code on any ISA, for batch 1 and 4; where a convolution or
           matrix product stays float, between compiled code on the ISAs with fused multiply-add, as the
           sums of others, and the interpreter's, are rounded more often;
  nodes    each int8 node on onnxruntime's own inputs against onnxruntime on the exported QDQ model:
           elements equal for what has int8 kernels there, and the largest step of anything.
ISAs are those that this host runs; AMX is emulated where it is missing and AVX-512-VNNI is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from qglow import Array, Model, QuantizedModel
from qglow.core.errors import UsageError
from qglow.graph.graph import Graph
from qglow.graph.operator import Accumulate
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Instruction
from qglow.profiling.samples import batches
from qglow.quantization.report import is_int8
from qglow.report.layers import compare_layers
from qglow.report.metrics import error_between
from qglow.report.oracle import SIGMOID_ERROR, OnnxruntimeModel
from qglow.targets import capabilities
from qglow.targets.registry import find_target, running_names
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from scripts.benchmarks.frame import Benchmark, Outcome, add_json_option, json_document, with_progress
from scripts.benchmarks.models.evaluated import EvaluatedModel
from scripts.benchmarks.models.opened import NAMES, opened_models
from scripts.benchmarks.tables import conditions, markdown_table, with_other_rows

BATCHES = (1, 4)
CALIBRATION_SAMPLES = 32
FLOAT_TOLERANCE = 1e-4
LEAST_EQUAL = 0.99999
TITLES = (
    "model",
    "float interpreter",
    "float compiled",
    "int8 elements",
    "different",
    "elements with an int8 kernel in ORT",
    "equal",
    "step",
    "step of others",
)


@dataclass(frozen=True)
class Row:
    """One model. Errors are relative; `equal` is a share, 0 to 1; steps are of int8."""

    model: str
    interpreter_error: float
    compiled_error: float
    int8_elements: int
    int8_different: int
    node_elements: int
    node_equal: float
    node_step: int
    other_step: int

    def failures(self) -> list[str]:
        """What is outside of the promise."""
        broken = {
            f"float differs by more than {FLOAT_TOLERANCE:g}": max(
                self.interpreter_error, self.compiled_error
            )
            > FLOAT_TOLERANCE,
            "int8 bits differ between runtimes": self.int8_different > 0,
            f"less than {LEAST_EQUAL:.3%} of elements equal onnxruntime's": self.node_equal < LEAST_EQUAL,
            "a node is more than one step from onnxruntime": max(self.node_step, self.other_step) > 1,
        }
        return [what for what, is_broken in broken.items() if is_broken]


def runnable_isas() -> list[str]:
    """Names of the ISAs whose code runs here, AMX by emulation where that is the only way."""
    isas = running_names()
    emulated = [name for name in running_names(for_tests=True) if name not in isas]
    return isas if "amx" in isas else isas + emulated


def measure(model: EvaluatedModel, samples: int) -> Row:
    """All comparisons of one model over its first evaluation samples."""
    loaded = model.load()
    recipe = model.recipe
    profile = model.profile(loaded, CALIBRATION_SAMPLES)
    quantized = loaded.quantize(profile, recipe)
    interpreted, compiled = _float_errors(loaded, model, samples)
    elements = different = 0
    for size in BATCHES:
        batched = _batched(loaded, size)
        if batched is None:
            continue
        fed = next(batches(model.evaluation.read(model, loaded, size), size)).inputs
        counted = _count_int8(batched.quantize(profile, recipe), fed)
        elements, different = elements + counted[0], different + counted[1]
    nodes = compare_layers(
        quantized.float_graph, quantized.graph, model.evaluation.read(model, loaded, samples)
    )
    fused, plain = nodes.matches(optimized=True), nodes.matches(optimized=False)
    steps = (fused.max_step, plain.max_step)
    return Row(model.name, interpreted, compiled, elements, different, fused.elements, fused.equal, *steps)


def _batched(loaded: Model, size: int) -> Model | None:
    """The model with another batch size; None, and a line on standard error, where its file fixes it."""
    try:
        return loaded.with_batch(size)
    except UsageError as error:
        print(f"{loaded.info.file}: {error}", file=sys.stderr)
        return None


def _float_errors(loaded: Model, model: EvaluatedModel, samples: int) -> tuple[float, float]:
    """The worst relative error of the interpreter, and of the compiled programs."""
    reference = OnnxruntimeModel(model.path, shapes=loaded.shapes)
    programs = [loaded.compile(isa=isa) for isa in runnable_isas()]
    interpreter = compiled = 0.0
    for batch in batches(model.evaluation.read(model, loaded, samples), 1):
        expected = reference(batch.inputs)
        interpreter = max(interpreter, _error(loaded.interpret(batch.inputs), expected))
        compiled = max(compiled, *(_error(program(batch.inputs), expected) for program in programs))
    return interpreter, compiled


def _error(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The worst of the outputs; what onnxruntime's own Sigmoid may be off counts as nothing."""
    errors = [error_between(found[name], array) for name, array in expected.items()]
    return max((error.relative for error in errors if error.max_abs > SIGMOID_ERROR), default=0.0)


def _count_int8(quantized: QuantizedModel, fed: Mapping[str, Array]) -> tuple[int, int]:
    """Elements of int8 tensors compared over all ISAs, and how many of them differ."""
    isas = runnable_isas()
    if has_float_sums(quantized.graph):
        isas = [name for name in isas if capabilities.machine(find_target(name)).has_fma]
        expected = _compiled(quantized, fed, isas.pop())
    else:
        expected = _interpreted(quantized, fed)
    elements = different = 0
    for isa in isas:
        found = _compiled(quantized, fed, isa)
        for name in expected.keys() & found.keys():
            elements += expected[name].size
            different += int(np.count_nonzero(found[name] != expected[name]))
    return elements, different


def has_float_sums(graph: Graph) -> bool:
    """Whether a convolution or matrix product stays float, of which only FMA gives the promised bits."""
    sums = (node for node in graph.nodes if isinstance(node.operator.policy, Accumulate))
    return any(not is_int8(node) for node in sums)


def _compiled(quantized: QuantizedModel, fed: Mapping[str, Array], isa: str) -> dict[str, Array]:
    """Every int8 tensor by buffer name, and the outputs, from compiled code."""
    program = compile_graph(quantized.graph, CompileOptions(isa=isa, observe=True))
    outputs = program(fed)
    tensors = {name: array for name, array in program.activations().items() if array.dtype == np.int8}
    return {**tensors, **outputs}


def _interpreted(quantized: QuantizedModel, fed: Mapping[str, Array]) -> dict[str, Array]:
    """Every int8 tensor by buffer name, and the outputs, from the interpreter on the planned arena."""
    program = lower_graph(quantized.graph, CompileOptions(observe=True))
    plan_memory(program, reuse=False)
    tensors: dict[str, Array] = {}

    def keep(instruction: Instruction, arrays: Mapping[str, Array]) -> None:
        for buffer in instruction.writes():
            if buffer.type.is_quantized:
                tensors[buffer.name] = arrays[buffer.name]

    outputs = ArenaInterpreter(program).run(fed, keep)
    return {**tensors, **outputs}


def to_markdown(rows: Iterable[Row], samples: int) -> str:
    """The table of the documentation."""
    body = [
        (
            row.model,
            f"{row.interpreter_error:.1e}",
            f"{row.compiled_error:.1e}",
            str(row.int8_elements),
            str(row.int8_different),
            str(row.node_elements),
            _share(row.node_equal),
            str(row.node_step),
            str(row.other_step),
        )
        for row in rows
    ]
    isas = ", ".join(runnable_isas())
    sizes = f"Batches: {', '.join(map(str, BATCHES))}, but 1 alone where the file fixes it."
    note = f"ISAs: {isas}. {sizes} {samples} samples. {conditions()}"
    return f"{markdown_table(TITLES, body)}\n\n{note}"


def _share(share: float) -> str:
    """Never rounded up to all."""
    return "all" if share == 1.0 else f"{int(1e7 * share) / 1e5:.5f} %"


def to_json(rows: Iterable[Row]) -> str:
    """The same as data."""
    return json_document(isas=runnable_isas(), models=[asdict(row) for row in rows])


def _measure_all(options: argparse.Namespace) -> Outcome:
    rows = [measure(model, options.samples) for model in with_progress(opened_models(options.models))]
    table = to_markdown(rows, options.samples)
    broken = [f"{row.model}: {why}" for row in rows for why in row.failures()]
    kept = partial(with_other_rows, "agreement", table, NAMES)
    return Outcome(table, kept, to_json(rows), broken)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=4, metavar="N", help="evaluated samples (4)")
    add_json_option(parser)


BENCHMARK = Benchmark(__doc__, _measure_all, "agreement", add_options=_add_options)
