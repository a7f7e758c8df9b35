"""Every int8 tensor of real models: the interpreter on the planned arena against compiled code.

The interpreter runs the program as it is deployed, buffers shared and memory reused. Compiled code
runs it twice: deployed, for the outputs, and with every activation kept apart, for every tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from qglow.core.types import Array
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.liveness import overlap
from qglow.instructions.ops.memory import FillPadding
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Buffer, Instruction, Program
from qglow.toolchain import CompileOptions, compile_graph, lower_graph
from tests.end_to_end.zoo_flow import CASES, RUNNABLE, inputs, quantized
from tests.runtimes import compare

LARGE = ("squeezenet1.1", "mobilenetv2_tin202", "resnet50v2s3_tin202")
FEWER = ("generic", RUNNABLE[-1]) if RUNNABLE else ()
"""ISAs that large models run on with a batch of 4: the least that there is and the most."""

Key = tuple[str, str]
"""An int8 tensor by the instruction that writes it and the operand: buffers are shared, these are not."""


@cache
def reference(name: str, batch: int) -> tuple[dict[str, Array], dict[Key, Array]]:
    """Outputs, and every int8 tensor right after it was written."""
    program = lower_graph(quantized(name, batch).graph)
    plan_memory(program)
    tensors: dict[Key, Array] = {}

    def tap(instruction: Instruction, arrays: dict[str, Array]) -> None:
        for key, buffer in written(instruction):
            tensors[key] = arrays[buffer.name]

    outputs = ArenaInterpreter(program).run(inputs(name, batch), tap)
    return outputs, tensors


def written(instruction: Instruction) -> Iterable[tuple[Key, Buffer]]:
    """The int8 results of an instruction."""
    results = instruction.writes()
    for spec, buffer in instruction.operands():
        if buffer in results and buffer.type.is_quantized:
            yield (instruction.name, spec.name), buffer


def last_written(program: Program) -> dict[Key, Buffer]:
    """The int8 results that nothing overwrites in part or whole; a border's filling is overwritten."""
    found: dict[Key, Buffer] = {}
    for instruction in program.code:
        if isinstance(instruction.operation, FillPadding) or not instruction.operation.touches_memory:
            continue
        for key, buffer in written(instruction):
            found = {k: other for k, other in found.items() if not overlap(other, buffer)} | {key: buffer}
    return found


@pytest.mark.parametrize("isa", RUNNABLE)
@pytest.mark.parametrize(("name", "batch"), CASES)
def test_every_int8_tensor_equals_the_interpreters(name: str, batch: int, isa: str) -> None:
    if name in LARGE and batch > 1 and isa not in FEWER:
        pytest.skip("large models run with a batch on two ISAs only, to save time")
    wanted_outputs, wanted = reference(name, batch)
    graph, fed = quantized(name, batch).graph, inputs(name, batch)
    deployed = compile_graph(graph, CompileOptions(isa=isa))(fed)
    observed = compile_graph(graph, CompileOptions(isa=isa, observe=True))
    outputs, activations = observed(fed), observed.activations()
    for output, array in wanted_outputs.items():
        compare(deployed[output], array, f"{output} on {isa}")
        compare(outputs[output], array, f"{output} on {isa}, kept apart")
    last = last_written(observed.program)
    assert len(last) > 0.8 * len(wanted) > 0
    for key, buffer in last.items():
        compare(activations[buffer.name], wanted[key], f"{key} on {isa}")


@pytest.mark.parametrize(("name", "batch"), CASES)
def test_int8_results_do_not_depend_on_batch(name: str, batch: int) -> None:
    """Samples of a batch do not see each other, whatever the kernels do with the rows."""
    if batch == 1 or name == "mymodel":
        pytest.skip("one sample, or the file fixes the batch")
    _, tensors = reference(name, 1)
    _, together = reference(name, batch)
    for key, array in tensors.items():
        compare(together[key][:1], array, f"{key} of the first sample")
