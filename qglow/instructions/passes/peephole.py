"""Simpler instructions for data movement and clamps. No rewrite changes a bit of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.passes import Pass, PassLog
from qglow.core.types import Shape
from qglow.instructions.operation import Operation
from qglow.instructions.ops.elementwise import Clip
from qglow.instructions.ops.memory import Copy, TensorView
from qglow.instructions.ops.movement import Extract, Insert, Transpose
from qglow.instructions.passes.code import Code
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


@dataclass(frozen=True)
class Peephole(Pass[Program]):
    """Simplify transposes that move nothing, transposes of transposes, clips of clips, and whole slices."""

    name: ClassVar[str] = "peephole"

    def run(self, ir: Program, log: PassLog) -> None:
        """Apply rules to each instruction in order until none applies; rules look only at earlier code."""
        code = Code(ir)
        for instruction in list(ir.code):
            while self._apply(code, instruction, log):
                pass
        code.finish()

    @staticmethod
    def _apply(code: Code, instruction: Instruction, log: PassLog) -> bool:
        rule = RULES.get(type(instruction.operation))
        if rule is None or log.exhausted:
            return False
        before = instruction.operation.opcode
        what = rule(code, instruction)
        if what is None:
            return False
        log.applied(f"%{instruction.name}", f"{before}: {what}")
        return True


def _transpose(code: Code, instruction: Instruction) -> str | None:
    operation, src = instruction.operation, instruction.operand("src")
    assert isinstance(operation, Transpose)
    producer = _only_producer(code, instruction, Transpose)
    if producer is not None:
        first = producer.operation
        assert isinstance(first, Transpose)
        joined = Transpose(tuple(first.perm[axis] for axis in operation.perm))
        code.change(instruction, joined, (instruction.operand("dest"), producer.operand("src")))
        return f"of transpose %{producer.name} becomes one"
    if not _keeps_order(operation.perm, src.type.shape) or not src.is_contiguous:
        return None
    _copy_of_reshape(code, instruction)
    return "keeps the order of elements"


def _keeps_order(perm: Shape, shape: Shape) -> bool:
    """Whether only axes of size 1 change places."""
    moved = [axis for axis in perm if shape[axis] != 1]
    return moved == sorted(moved)


def _copy_of_reshape(code: Code, instruction: Instruction) -> None:
    src, dest = instruction.operand("src"), instruction.operand("dest")
    if src.type.shape != dest.type.shape:
        view = Buffer(code.unique_name(f"{src.name}_view"), dest.type, BufferKind.VIEW, base=src)
        code.insert_before(instruction, Instruction(view.name, TensorView(), (view, src)))
        src = view
    code.change(instruction, Copy(), (dest, src))


def _clip(code: Code, instruction: Instruction) -> str | None:
    operation = instruction.operation
    assert isinstance(operation, Clip)
    producer = _only_producer(code, instruction, Clip)
    if producer is None:
        return None
    first = producer.operation
    assert isinstance(first, Clip)
    low = min(max(first.lo, operation.lo), operation.hi)
    high = min(max(first.hi, operation.lo), operation.hi)
    code.change(instruction, Clip(low, high), (instruction.operand("dest"), producer.operand("src")))
    return f"of clip %{producer.name} becomes one"


def _insert(code: Code, instruction: Instruction) -> str | None:
    if instruction.operand("dest").type.shape != instruction.operand("src").type.shape:
        return None
    code.change(instruction, Copy(), (instruction.operand("dest"), instruction.operand("src")))
    return "of everything is a copy"


def _extract(code: Code, instruction: Instruction) -> str | None:
    if instruction.operand("dest").type.shape != instruction.operand("src").type.shape:
        return None
    code.change(instruction, Copy(), (instruction.operand("dest"), instruction.operand("src")))
    return "of everything is a copy"


RULES: dict[type[Operation], Callable[[Code, Instruction], str | None]] = {
    Transpose: _transpose,
    Clip: _clip,
    Insert: _insert,
    Extract: _extract,
}


def _only_producer(code: Code, instruction: Instruction, kind: type[Operation]) -> Instruction | None:
    """The instruction of this kind that alone writes src, if its own operand has not changed since."""
    src = instruction.operand("src")
    if src.kind is not BufferKind.ACTIVATION:
        return None
    writers = [touch for touch in code.touches(src) if touch.writes]
    if len(writers) != 1 or writers[0].buffer is not src:
        return None
    producer = writers[0].instruction
    if not isinstance(producer.operation, kind) or code.precedes(instruction, producer):
        return None
    original = producer.operand("src")
    if original.root is src:
        return None
    if any(touch.writes for touch in code.touches_within(original, producer, instruction)):
        return None
    freed = code.deallocation(original.root)
    return None if freed is not None and code.precedes(freed, instruction) else producer
