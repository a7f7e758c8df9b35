"""Arguments of kernels: the arrays stored for them, and the facts about operands that code depends on."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.program import Instruction
from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Kernel
from qglow.kernels.emit.operand import Memory
from qglow.kernels.emit.parameter import (
    PARAMETERS,
    one_scale,
    parameter_array,
    with_parameters,
    without_numbers,
)
from qglow.kernels.emit.target import VectorTarget


def stored_arrays(kernel: Kernel, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
    """The arrays of a kernel, with the parameters of its operands if it reads them."""
    packed = kernel.constants(instruction, target)
    has_scales = any(one_scale(buffer.type) is not None for _, buffer in instruction.operands())
    if has_scales and kernel.reads_parameters(instruction, target):
        return {**packed, PARAMETERS: parameter_array(instruction, target.activation_bias)}
    return packed


def with_read_parameters(
    e: Emitter, operation: Operation, memories: dict[str, Memory], array: Value | None
) -> dict[str, Memory]:
    """Operands with their parameters read from `array`; unchanged if that is None."""
    if array is None:
        return memories
    return {name: with_parameters(e, operation, name, memory, array) for name, memory in memories.items()}


def compared_operands(
    kernel: Kernel, operation: Operation, memories: Mapping[str, Memory], packed: Collection[str]
) -> tuple[object, ...]:
    """Facts about operands that the code depends on, and those it derives from their parameters."""
    compared = {name: kernel.compared(operation, memory) for name, memory in memories.items()}
    if PARAMETERS not in packed:
        return tuple(compared.items())
    read = {name: without_numbers(memory) for name, memory in compared.items()}
    return (*read.items(), kernel.decided(operation, memories))


def array_shapes(packed: Mapping[str, Array]) -> tuple[object, ...]:
    """Facts about stored arrays that code depends on: name, shape and element type."""
    return tuple((name, array.shape, array.dtype.str) for name, array in packed.items())
