"""What the entry calls: one function for an instruction, or for a stack of them.

Calls with equal keys share one function; addresses come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.liveness import Usage, same_place
from qglow.instructions.passes.stacking import is_internal
from qglow.instructions.program import Buffer, BufferKind, Instruction
from qglow.kernels.builder import Emitter, Value
from qglow.kernels.elementwise import Elementwise, Member, emit_members, spread_over_dest, touched_places
from qglow.kernels.epilogue import StackEpilogue
from qglow.kernels.epilogue_choice import has_pool, result_place
from qglow.kernels.isa import Isa
from qglow.kernels.kernel import Epilogue, Kernel, Site, parse_kernel
from qglow.kernels.operand import Memory, memory_of
from qglow.kernels.pool_epilogue import GlobalAverage

Body = Callable[[Emitter, Sequence[Value], Sequence[Value]], None]


@dataclass(frozen=True, eq=False)
class Call:
    """A function to be called with the addresses of `buffers` and of `arrays` (packed constants).

    `emit` makes its body from these addresses. `key` is all that the body depends on. `group` are
    the instructions that it executes, `cost` their estimated cycles.
    """

    name: str
    key: tuple[object, ...]
    buffers: tuple[Buffer, ...]
    arrays: tuple[Array, ...]
    emit: Body
    group: tuple[Instruction, ...]
    cost: float

    @property
    def unaliased(self) -> tuple[bool, ...]:
        """For every buffer, whether no other one shares memory with it."""
        extents = [_extent(buffer) for buffer in self.buffers]
        return tuple(
            not any(_meet(mine, other) for place, other in enumerate(extents) if place != number)
            for number, mine in enumerate(extents)
        )


def make_call(group: Sequence[Instruction], usage: Usage, isa: Isa) -> Call:
    """The call of one instruction, or of a stack. Raises InternalError where kernels are missing."""
    for instruction in group:
        if not instruction.kernel:
            raise InternalError(f"{instruction.name} has no kernel; selection has not run")
    if len(group) == 1:
        return _instruction_call(group[0], isa)
    if group[0].operation.has_epilogue:
        return _epilogue_call(list(group), isa)
    return _stack_call(list(group), usage, isa)


@dataclass(frozen=True)
class _Ending:
    """An epilogue with so many buffers and arrays of its own.

    `make` gets the address of the stored results, then those of its buffers and of its arrays.
    """

    buffers: int
    arrays: int
    make: Callable[[Emitter, Value, Sequence[Value], Sequence[Value]], Epilogue]


def _instruction_call(instruction: Instruction, isa: Isa, ending: _Ending | None = None) -> Call:
    """The call of an instruction; an ending's buffers and arrays come behind its own."""
    kernel = parse_kernel(instruction.kernel)
    packed = kernel.constants(instruction, isa)
    operands = {spec.name: b for spec, b in instruction.operands() if spec.name not in packed}

    def emit(e: Emitter, buffers: Sequence[Value], arrays: Sequence[Value]) -> None:
        pointers = dict(zip(operands, buffers, strict=ending is None))
        memories = {
            name: memory_of(pointers[name], buffer, isa)
            for name, buffer in operands.items()
            if name != "scratch"
        }
        constants = dict(zip(packed, arrays, strict=ending is None))
        epilogue = None
        if ending is not None:
            epilogue = ending.make(e, pointers["dest"], buffers[len(operands) :], arrays[len(packed) :])
        kernel.emit(Site(e, instruction, isa, memories, constants, pointers.get("scratch"), epilogue))

    operation = instruction.operation
    places = {name: memory_of(None, buffer, isa) for name, buffer in operands.items()}
    compared = tuple((name, kernel.compared(operation, memory)) for name, memory in places.items())
    key = (operation, instruction.kernel, compared, _shapes(packed))
    buffers, arrays = tuple(operands.values()), tuple(packed.values())
    cost = kernel.cost(instruction, isa)
    return Call(operation.opcode, key, buffers, arrays, emit, (instruction,), cost)


def _shapes(packed: dict[str, Array]) -> tuple[object, ...]:
    return tuple((name, array.shape, array.dtype.str) for name, array in packed.items())


def _stack_call(group: list[Instruction], usage: Usage, isa: Isa) -> Call:
    """One loop over all members; buffers that are the same elements are one place."""
    kernels = [_elementwise(instruction) for instruction in group]
    packed = [kernel.constants(i, isa) for kernel, i in zip(kernels, group, strict=True)]
    stored = [not is_internal(usage, group, index) for index in range(len(group))]
    buffers, places = _numbered(group, packed)

    def members(pointers: Sequence[Value], tables: Sequence[Value]) -> list[Member]:
        remaining, made = iter(tables), []
        for number, instruction in enumerate(group):
            memories = {
                spec.name: memory_of(pointers[places[number][spec.name]], buffer, isa)
                for spec, buffer in instruction.operands()
                if spec.name in places[number]
            }
            made.append(
                Member(
                    instruction.operation,
                    spread_over_dest(instruction.operation, memories),
                    places[number],
                    {name: next(remaining) for name in packed[number]},
                    kernels[number].proven,
                    stored[number],
                )
            )
        return made

    arrays = tuple(array for constants in packed for array in constants.values())
    needed = [place for place, _ in touched_places(members([None] * len(buffers), arrays))]

    def emit(e: Emitter, given: Sequence[Value], tables: Sequence[Value]) -> None:
        pointers: list[Value] = [None] * len(buffers)
        for place, pointer in zip(needed, given, strict=True):
            pointers[place] = pointer
        emit_members(e, members(pointers, tables), kernels[0].lanes)

    blank = members([None] * len(buffers), [None] * len(arrays))
    keys = (_member_key(kernel, member) for kernel, member in zip(kernels, blank, strict=True))
    key = tuple(keys), kernels[0].lanes, tuple(needed)
    name = "stack_" + "_".join(i.operation.opcode for i in group)
    cost = sum(kernel.cost(i, isa) for kernel, i in zip(kernels, group, strict=True))
    return Call(name, key, tuple(buffers[place] for place in needed), arrays, emit, tuple(group), cost)


def _numbered(
    group: Sequence[Instruction], packed: Sequence[Mapping[str, Array]]
) -> tuple[list[Buffer], list[dict[str, int]]]:
    """The operands that no constants replace, by instruction and name; the same elements are one place."""
    numbers: dict[object, int] = {}
    buffers: list[Buffer] = []
    places: list[dict[str, int]] = []
    for instruction, constants in zip(group, packed, strict=True):
        found = {}
        for spec, buffer in instruction.operands():
            if spec.name in constants:
                continue
            place = _elements(buffer)
            if place not in numbers:
                numbers[place] = len(buffers)
                buffers.append(buffer)
            found[spec.name] = numbers[place]
        places.append(found)
    return buffers, places


def _elements(buffer: Buffer) -> object:
    """Equal for buffers whose elements are the same ones."""
    shape, layout = buffer.type.shape, buffer.layout
    strides = tuple(step for size, step in zip(shape, layout.strides, strict=True) if size != 1)
    return buffer.root, shape, layout.offset, strides


def _epilogue_call(group: list[Instruction], isa: Isa) -> Call:
    """The first of a group stores what the others make of its results, or adds it up for a pool."""
    pool = group[-1] if has_pool(group) else None
    elementwise = group[:-1] if pool else group
    head, followers = _storing(group[0], result_place(group, isa)), elementwise[1:]
    kernels = [parse_kernel(instruction.kernel) for instruction in followers]
    packed = [kernel.constants(i, isa) for kernel, i in zip(kernels, followers, strict=True)]
    buffers, (own, *places) = _numbered(
        elementwise, [parse_kernel(head.kernel).constants(head, isa), *packed]
    )
    made = {own["dest"], *(found["dest"] for found in places)}
    beside = sorted({place for found in places for place in found.values()} - made)

    def epilogue(e: Emitter, start: Value, given: Sequence[Value], tables: Sequence[Value]) -> Epilogue:
        members = _epilogue_members(followers, places, packed, tables, isa)
        average = None if pool is None else GlobalAverage.of(e, *_pool_memories(pool, start, isa))
        starts = dict(zip(beside, given, strict=True))
        return StackEpilogue(members, own["dest"], start, starts, average)

    arrays = tuple(array for constants in packed for array in constants.values())
    blank = _epilogue_members(followers, places, packed, [None] * len(arrays), isa)
    keys = tuple(_member_key(kernel, member) for kernel, member in zip(kernels, blank, strict=True))
    pooled = () if pool is None else _pool_memories(pool, None, isa)
    alone = _instruction_call(head, isa, _Ending(len(beside), len(arrays), epilogue))
    # No memory holds what a pool adds up: its distances alone count, from where the means go.
    means = head.operand("dest") if pool is None else pool.operand("dest")
    stored = tuple(means if buffer is head.operand("dest") else buffer for buffer in alone.buffers)
    return replace(
        alone,
        name="_".join(instruction.operation.opcode for instruction in group),
        key=(*alone.key, own["dest"], *keys, *pooled),
        buffers=(*stored, *(buffers[place] for place in beside)),
        arrays=(*alone.arrays, *arrays),
        group=tuple(group),
        cost=alone.cost + sum(parse_kernel(i.kernel).cost(i, isa) for i in group[1:]),
    )


def _epilogue_members(
    followers: Sequence[Instruction],
    places: Sequence[Mapping[str, int]],
    packed: Sequence[Mapping[str, Array]],
    given: Sequence[Value],
    isa: Isa,
) -> tuple[Member, ...]:
    """What works on results in turn, with the addresses of tables."""
    tables, found = iter(given), []
    for instruction, placed, constants in zip(followers, places, packed, strict=True):
        memories = {
            spec.name: memory_of(None, buffer, isa)
            for spec, buffer in instruction.operands()
            if spec.name in placed
        }
        named = {name: next(tables) for name in constants}
        found.append(Member(instruction.operation, memories, placed, named, False, False))
    return tuple(found)


def _pool_memories(pool: Instruction, start: Value, isa: Isa) -> tuple[Memory, Memory]:
    """What a pool adds up, which is nowhere, and its means, which start at an address."""
    return memory_of(None, pool.operand("src"), isa), memory_of(start, pool.operand("dest"), isa)


def _storing(instruction: Instruction, place: Buffer) -> Instruction:
    """An instruction with its result, of its own type, in the elements of another of its shape."""
    dest = instruction.operand("dest")
    if same_place(dest, place):
        return instruction
    offsets = (0,) * len(dest.type.shape)
    moved = Buffer(dest.name, dest.type, BufferKind.VIEW, base=place, offsets=offsets)
    return replace(instruction, buffers=tuple(moved if b is dest else b for b in instruction.buffers))


def _elementwise(instruction: Instruction) -> Elementwise:
    kernel: Kernel = parse_kernel(instruction.kernel)
    if not isinstance(kernel, Elementwise):
        raise InternalError(f"{instruction.name} is stacked, but its kernel is {instruction.kernel}")
    return kernel


def _member_key(kernel: Kernel, member: Member) -> tuple[object, ...]:
    operation = member.operation
    return (
        operation,
        tuple((name, kernel.compared(operation, memory)) for name, memory in member.memories.items()),
        tuple(member.places.items()),
        tuple(member.tables),
        member.proven,
        member.stored,
    )


def share_memory(left: Buffer, right: Buffer) -> bool:
    """Whether two buffers are in one root, or in roots that share memory."""
    return _meet(_extent(left), _extent(right))


def _extent(buffer: Buffer) -> tuple[Buffer, int, int]:
    root = buffer.root
    if root.kind is BufferKind.ACTIVATION and root.arena_offset is None:
        return root, 0, 0  # in registers
    start = root.arena_offset or 0
    return root, start, start + root.byte_size


def _meet(left: tuple[Buffer, int, int], right: tuple[Buffer, int, int]) -> bool:
    if left[0] is right[0]:
        return True
    both = left[0].kind is BufferKind.ACTIVATION and right[0].kind is BufferKind.ACTIVATION
    return both and left[1] < right[2] and right[1] < left[2]
