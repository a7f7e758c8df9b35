"""Every int8 tensor of a model: the interpreter on the planned arena against compiled code.

The interpreter runs the program as it is deployed, buffers shared and memory reused. Compiled code
runs it twice: deployed, for the outputs, and with every activation kept apart, for every tensor.

A Conv or matrix product that stays float is one chain of fused multiply-adds. The interpreter takes
its exact reference here instead of numpy's sums, so bits are equal on every ISA that has the
instruction; one without it rounds products too, which may move what follows by a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from unittest.mock import patch

import numpy as np

from qglow.core.types import Array
from qglow.graph.graph import Graph
from qglow.graph.operator import Accumulate
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.liveness import overlap
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Buffer, Instruction, Program
from qglow.numerics.fused import conv_chain, gemm_chain
from qglow.quantization.report import is_int8
from qglow.targets.x86.isas import isa_by_name
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from tests.runtimes import compare

Key = tuple[str, str]
"""An int8 tensor by the instruction that writes it and the operand: buffers are shared, these are not."""
Tensors = tuple[dict[str, Array], dict[Key, Array]]
"""Outputs by name, and int8 tensors."""

MOVED = 1e-3
"""The most elements, as a share, that products rounded before they are added may move by a step."""


def interpreted_tensors(graph: Graph, inputs: Mapping[str, Array]) -> Tensors:
    """The interpreter's outputs, and every int8 tensor right after it was written."""
    program = lower_graph(graph)
    plan_memory(program)
    tensors: dict[Key, Array] = {}

    def tap(instruction: Instruction, arrays: dict[str, Array]) -> None:
        for key, buffer in _written(instruction):
            tensors[key] = arrays[buffer.name]

    operations = "qglow.instructions.ops"
    with (
        patch(f"{operations}.conv.conv_float", conv_chain),
        patch(f"{operations}.linear.gemm_float", gemm_chain),
    ):
        return ArenaInterpreter(program).run(inputs, tap), tensors


def has_float_sums(graph: Graph) -> bool:
    """Whether a Conv or matrix product stays float."""
    sums = (node for node in graph.nodes if isinstance(node.operator.policy, Accumulate))
    return any(not is_int8(node) for node in sums)


def assert_compiled_tensors_equal(
    graph: Graph, inputs: Mapping[str, Array], isa: str, expected: Tensors, deployed: bool = True
) -> None:
    """The graph compiled for an ISA gives the very bits that are expected, save rounded float products.

    `deployed` False leaves out the program whose memory is shared, which takes as long again.
    """
    wanted_outputs, wanted = expected
    equal = compare if isa_by_name(isa).has_fma or not has_float_sums(graph) else nearly_equal
    observed = compile_graph(graph, CompileOptions(isa=isa, observe=True))
    outputs, activations = observed(inputs), observed.activations()
    shared = compile_graph(graph, CompileOptions(isa=isa))(inputs) if deployed else outputs
    for output, array in wanted_outputs.items():
        equal(shared[output], array, f"{output} on {isa}")
        equal(outputs[output], array, f"{output} on {isa}, kept apart")
    last = _last_written(observed.program)
    assert len(last) > 0.8 * len(wanted) > 0
    for key, buffer in last.items():
        equal(activations[buffer.name], wanted[key], f"{key} on {isa}")


def same(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    """Whether all arrays of the second have an equal shape and equal bits in the first."""
    return all(
        first[name].shape == second[name].shape and first[name].tobytes() == second[name].tobytes()
        for name in second
    )


def nearly_equal(actual: Array, wanted: Array, what: str) -> None:
    """int8 within a step and nearly all the same; float within what such a step does to it."""
    if wanted.dtype.kind == "f":
        compare(actual, wanted, what, 0.02)
        return
    steps = np.abs(actual.astype(np.int64) - wanted)
    assert np.max(steps, initial=0) <= 1, what
    assert np.count_nonzero(steps) <= MOVED * wanted.size, what


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
