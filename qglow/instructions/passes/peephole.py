"""Simpler instructions for what moves data or clamps. No rewrite changes a bit of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.core.types import Shape
from qglow.instructions.liveness import Usage
from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import Clip
from qglow.instructions.ops.memory import Copy, TensorView
from qglow.instructions.ops.movement import Extract, Insert, Transpose
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


@dataclass(frozen=True)
class Peephole(Pass[Program]):
    """Transposes that move nothing, transposes of transposes, clips of clips, whole slices."""

    name: ClassVar[str] = "peephole"

    def run(self, ir: Program, log: PassLog) -> None:
        """Every rule on every instruction, until none applies."""
        while any(self._apply(ir, instruction, log) for instruction in list(ir.code)):
            pass

    @staticmethod
    def _apply(program: Program, instruction: Instruction, log: PassLog) -> bool:
        rule = RULES.get(type(instruction.operation))
        if rule is None or log.exhausted:
            return False
        before = instruction.operation.opcode
        what = rule(program, instruction)
        if what is None:
            return False
        log.applied(f"%{instruction.name}", f"{before}: {what}")
        return True


def _transpose(program: Program, instruction: Instruction) -> str | None:
    operation, src = instruction.operation, instruction.operand("src")
    assert isinstance(operation, Transpose)
    producer = _only_producer(program, instruction, Transpose)
    if producer is not None:
        first = producer.operation
        assert isinstance(first, Transpose)
        instruction.operation = Transpose(tuple(first.perm[axis] for axis in operation.perm))
        instruction.buffers = (instruction.operand("dest"), producer.operand("src"))
        return f"of transpose %{producer.name} becomes one"
    if not _keeps_order(operation.perm, src.type.shape) or not src.is_contiguous:
        return None
    _copy_of_reshape(program, instruction)
    return "keeps the order of elements"


def _keeps_order(perm: Shape, shape: Shape) -> bool:
    """Whether only axes of one element change places."""
    moved = [axis for axis in perm if shape[axis] != 1]
    return moved == sorted(moved)


def _copy_of_reshape(program: Program, instruction: Instruction) -> None:
    src, dest = instruction.operand("src"), instruction.operand("dest")
    if src.type.shape == dest.type.shape:
        instruction.operation = Copy()
        return
    view = Buffer(program.unique_name(f"{src.name}_view"), dest.type, BufferKind.VIEW, base=src)
    position = program.code.index(instruction)
    program.code.insert(position, Instruction(view.name, TensorView(), (view, src)))
    instruction.operation, instruction.buffers = Copy(), (dest, view)


def _clip(program: Program, instruction: Instruction) -> str | None:
    operation = instruction.operation
    assert isinstance(operation, Clip)
    producer = _only_producer(program, instruction, Clip)
    if producer is None:
        return None
    first = producer.operation
    assert isinstance(first, Clip)
    low = min(max(first.lo, operation.lo), operation.hi)
    high = min(max(first.hi, operation.lo), operation.hi)
    instruction.operation = Clip(low, high)
    instruction.buffers = (instruction.operand("dest"), producer.operand("src"))
    return f"of clip %{producer.name} becomes one"


def _insert(program: Program, instruction: Instruction) -> str | None:
    if instruction.operand("dest").type.shape != instruction.operand("src").type.shape:
        return None
    instruction.operation = Copy()
    return "of everything is a copy"


def _extract(program: Program, instruction: Instruction) -> str | None:
    if instruction.operand("dest").type.shape != instruction.operand("src").type.shape:
        return None
    instruction.operation = Copy()
    return "of everything is a copy"


RULES: dict[type[Operation], Callable[[Program, Instruction], str | None]] = {
    Transpose: _transpose,
    Clip: _clip,
    Insert: _insert,
    Extract: _extract,
}


def _only_producer(program: Program, instruction: Instruction, kind: type[Operation]) -> Instruction | None:
    """The instruction of this kind that alone writes src, if its own src is still the same then."""
    src, at = instruction.operand("src"), program.code.index(instruction)
    if src.kind is not BufferKind.ACTIVATION:
        return None
    usage = Usage(program)
    writers = [use for use in usage.uses(src) if use.writes]
    if len(writers) != 1 or writers[0].buffer is not src or writers[0].index > at:
        return None
    producer = writers[0].instruction
    if not isinstance(producer.operation, kind):
        return None
    original = producer.operand("src")
    if original.root is src or usage.writes_between(original, writers[0].index, at + 1):
        return None
    freed = usage.deallocated(original.root)
    return None if freed is not None and freed < at else producer
