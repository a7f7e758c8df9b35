"""Every int8 tensor of a model: the interpreter on the planned arena against compiled code.

The interpreter runs the program as it is deployed, buffers shared and memory reused. Compiled code
runs it twice: deployed, for the outputs, and with every activation kept apart, for every tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.liveness import overlap
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Buffer, Instruction, Program
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from tests.runtimes import compare

Key = tuple[str, str]
"""An int8 tensor by the instruction that writes it and the operand: buffers are shared, these are not."""
Tensors = tuple[dict[str, Array], dict[Key, Array]]
"""Outputs by name, and int8 tensors."""


def interpreted_tensors(graph: Graph, inputs: Mapping[str, Array]) -> Tensors:
    """The interpreter's outputs, and every int8 tensor right after it was written."""
    program = lower_graph(graph)
    plan_memory(program)
    tensors: dict[Key, Array] = {}

    def tap(instruction: Instruction, arrays: dict[str, Array]) -> None:
        for key, buffer in _written(instruction):
            tensors[key] = arrays[buffer.name]

    return ArenaInterpreter(program).run(inputs, tap), tensors


def assert_compiled_tensors_equal(
    graph: Graph, inputs: Mapping[str, Array], isa: str, expected: Tensors, deployed: bool = True
) -> None:
    """The graph compiled for an ISA gives the very bits that are expected.

    `deployed` False leaves out the program whose memory is shared, which takes as long again.
    """
    wanted_outputs, wanted = expected
    observed = compile_graph(graph, CompileOptions(isa=isa, observe=True))
    outputs, activations = observed(inputs), observed.activations()
    shared = compile_graph(graph, CompileOptions(isa=isa))(inputs) if deployed else outputs
    for output, array in wanted_outputs.items():
        compare(shared[output], array, f"{output} on {isa}")
        compare(outputs[output], array, f"{output} on {isa}, kept apart")
    last = _last_written(observed.program)
    assert len(last) > 0.8 * len(wanted) > 0
    for key, buffer in last.items():
        compare(activations[buffer.name], wanted[key], f"{key} on {isa}")


def _written(instruction: Instruction) -> Iterable[tuple[Key, Buffer]]:
    """The int8 results of an instruction."""
    results = instruction.writes()
    for spec, buffer in instruction.operands():
        if buffer in results and buffer.type.is_quantized:
            yield (instruction.name, spec.name), buffer


def _last_written(program: Program) -> dict[Key, Buffer]:
    """The int8 results that nothing overwrites in part or whole; a border's filling is overwritten."""
    found: dict[Key, Buffer] = {}
    for instruction in program.code:
        if isinstance(instruction.operation, FillPadding) or not instruction.operation.touches_memory:
            continue
        for key, buffer in _written(instruction):
            found = {k: other for k, other in found.items() if not overlap(other, buffer)} | {key: buffer}
    return found
