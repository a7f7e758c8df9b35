"""Calls of kernel functions by a program's entry: one for an instruction, or for a stack of them.

Calls with equal keys share one function; addresses are passed as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qglow.codegen.arguments import (
    array_shapes,
    compared_operands,
    stored_arrays,
    with_read_parameters,
)
from qglow.core.errors import InternalError
from qglow.core.types import Array
from qglow.instructions.liveness import Usage, same_place
from qglow.instructions.passes.stacking import is_internal, stacks
from qglow.instructions.program import Buffer, BufferKind, Instruction, Live, Program
from qglow.kernels.elementwise.elementwise import (
    Elementwise,
    Member,
    emit_members,
    spread_over_dest,
    touched_places,
)
from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.kernel import Epilogue, Kernel, Site, parse_kernel
from qglow.kernels.emit.operand import Memory, memory_of
from qglow.kernels.emit.parameter import PARAMETERS
from qglow.kernels.emit.target import VectorTarget
from qglow.kernels.pooling.mean_epilogue import GlobalMean
from qglow.kernels.selection.epilogue import StackEpilogue
from qglow.kernels.selection.epilogue_choice import ends_in_mean, result_place

Body = Callable[[Emitter, Sequence[Value], Sequence[Value]], None]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a function with the addresses of `buffers` and of `arrays` (packed constants).

    `emit` emits its body, given these addresses. `key` holds everything that the body depends on. `group`
    are the instructions that it executes, `cost` their estimated cycles. `bodies` are the calls of programs
    inside of the instruction: such a call has no function of its own. `live`, `summed`: as those of an
    instruction, where the kernel makes use of them.
    """

    name: str
    key: tuple[object, ...]
    buffers: tuple[Buffer, ...]
    arrays: tuple[Array, ...]
    emit: Body
    group: tuple[Instruction, ...]
    cost: float
    bodies: tuple[tuple[Call, ...], ...] = ()
    live: tuple[Live, ...] = ()
    summed: Buffer | None = None

    @property
    def has_function(self) -> bool:
        """Whether it calls a kernel's function."""
        return not (self.hosted or self.group[0].operation.body_names)

    @property
    def counts(self) -> list[Buffer]:
        """Placeholders with numbers of live places, which the function takes behind its addresses."""
        return [*(live.count for live in self.live), *([] if self.summed is None else [self.summed])]

    @property
    def hosted(self) -> bool:
        """Whether Python executes it, so that it has no function."""
        return self.group[0].operation.hosted

    @property
    def unaliased(self) -> tuple[bool, ...]:
        """Flags, one for each buffer: whether it shares memory with none of the others."""
        extents = [_extent(buffer) for buffer in self.buffers]
        return tuple(
            not any(_meet(mine, other) for place, other in enumerate(extents) if place != number)
            for number, mine in enumerate(extents)
        )


def make_call(group: Sequence[Instruction], usage: Usage, target: VectorTarget) -> Call:
    """The call of one instruction, or of a stack. Raises InternalError if kernels are missing."""
    for instruction in group:
        if not instruction.kernel:
            raise InternalError(f"{instruction.name} has no kernel; selection has not run")
    if group[0].operation.body_names:
        return _structured_call(group[0], target)
    call = _call(group, usage, target)
    if not parse_kernel(group[0].kernel, target).limits_live:
        return call
    summed = group[0].summed if len(group) == 1 else None
    return replace(call, live=_live(group), summed=summed)


def _call(group: Sequence[Instruction], usage: Usage, target: VectorTarget) -> Call:
    if len(group) == 1:
        return _instruction_call(group[0], target)
    if group[0].operation.has_epilogue:
        return _epilogue_call(list(group), target)
    return _stack_call(list(group), usage, target)


def make_calls(program: Program, target: VectorTarget) -> list[Call]:
    """The calls that execute a program, in order. Raises InternalError if kernels are missing."""
    usage = Usage(program)
    return [make_call(group, usage, target) for group in stacks(program)]


def _structured_call(instruction: Instruction, target: VectorTarget) -> Call:
    """The call of an instruction with bodies, whose operands are all passed."""
    bodies = tuple(tuple(make_calls(body, target)) for body in instruction.operation.bodies)
    buffers = tuple(buffer for _, buffer in instruction.operands())
    kernel = parse_kernel(instruction.kernel, target)

    def emit(e: Emitter, given: Sequence[Value], arrays: Sequence[Value]) -> None:
        raise InternalError(f"{instruction.name} has no function")

    cost = kernel.cost(instruction, target)
    return Call(instruction.operation.opcode, (), buffers, (), emit, (instruction,), cost, bodies)


def _live(group: Sequence[Instruction]) -> tuple[Live, ...]:
    """Elements that matter of all results of a group alike; nothing where these are all, or not alike.

    A mean at the end has other elements, but as many images: then images alone are left out.
    """
    *rest, last = group
    if rest and ends_in_mean(group):
        first, images = _live(rest)[:1], _images(last, last.live)
        return first if images is not None and images == _images(rest[0], first) else ()
    alike = all(instruction.live == group[0].live for instruction in group)
    return group[0].live if alike else ()


def _images(instruction: Instruction, live: Sequence[Live]) -> tuple[Buffer, int] | None:
    """The number of live images of a result and how many there are; None where rules are about other axes."""
    dest = instruction.operand("dest").type
    if not live or live[0].period != dest.size or live[0].extent != dest.shape[0]:
        return None
    return live[0].count, live[0].extent


@dataclass(frozen=True)
class _Ending:
    """An epilogue, with the numbers of its own buffers and arrays.

    `make` gets the address of the stored results, then those of its buffers and of its arrays.
    """

    buffers: int
    arrays: int
    make: Callable[[Emitter, Value, Sequence[Value], Sequence[Value]], Epilogue]


def _instruction_call(instruction: Instruction, target: VectorTarget, ending: _Ending | None = None) -> Call:
    """The call of an instruction; buffers and arrays of `ending` follow its own."""
    kernel = parse_kernel(instruction.kernel, target)
    packed = stored_arrays(kernel, instruction, target)
    operands = {spec.name: b for spec, b in instruction.operands() if spec.name not in packed}

    def emit(e: Emitter, buffers: Sequence[Value], arrays: Sequence[Value]) -> None:
        pointers = dict(zip(operands, buffers, strict=ending is None))
        memories = {
            name: memory_of(pointers[name], buffer, target)
            for name, buffer in operands.items()
            if name != "scratch"
        }
        constants = dict(zip(packed, arrays, strict=ending is None))
        memories = with_read_parameters(e, instruction.operation, memories, constants.pop(PARAMETERS, None))
        epilogue = None
        if ending is not None:
            epilogue = ending.make(e, pointers["dest"], buffers[len(operands) :], arrays[len(packed) :])
        kernel.emit(Site(e, instruction, target, memories, constants, pointers.get("scratch"), epilogue))

    operation = instruction.operation
    places = {name: memory_of(None, buffer, target) for name, buffer in operands.items()}
    key = (
        operation,
        instruction.kernel,
        compared_operands(kernel, operation, places, packed),
        array_shapes(packed),
    )
    buffers, arrays = tuple(operands.values()), tuple(packed.values())
    cost = kernel.cost(instruction, target)
    return Call(operation.opcode, key, buffers, arrays, emit, (instruction,), cost)


def _stack_call(group: list[Instruction], usage: Usage, target: VectorTarget) -> Call:
    """One loop over all members; buffers with the same elements are passed once, as one place."""
    kernels = [_elementwise(instruction, target) for instruction in group]
    packed = [stored_arrays(kernel, i, target) for kernel, i in zip(kernels, group, strict=True)]
    stored = [not is_internal(usage, group, index) for index in range(len(group))]
    buffers, places = _numbered(group, packed)

    def members(pointers: Sequence[Value], tables: Sequence[Value], e: Emitter | None = None) -> list[Member]:
        remaining, made = iter(tables), []
        for number, instruction in enumerate(group):
            memories = {
                spec.name: memory_of(pointers[places[number][spec.name]], buffer, target)
                for spec, buffer in instruction.operands()
                if spec.name in places[number]
            }
            named = {name: next(remaining) for name in packed[number]}
            if e is not None:
                memories = with_read_parameters(e, instruction.operation, memories, named.get(PARAMETERS))
            made.append(
                Member(
                    instruction.operation,
                    spread_over_dest(instruction.operation, memories),
                    places[number],
                    named,
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
        emit_members(e, members(pointers, tables, e), kernels[0].lanes)

    blank = members([None] * len(buffers), [None] * len(arrays))
    keys = (_member_key(kernel, member) for kernel, member in zip(kernels, blank, strict=True))
    key = tuple(keys), kernels[0].lanes, tuple(needed)
    name = "stack_" + "_".join(i.operation.opcode for i in group)
    cost = sum(kernel.cost(i, target) for kernel, i in zip(kernels, group, strict=True))
    return Call(name, key, tuple(buffers[place] for place in needed), arrays, emit, tuple(group), cost)


def _numbered(
    group: Sequence[Instruction], packed: Sequence[Mapping[str, Array]]
) -> tuple[list[Buffer], list[dict[str, int]]]:
    """The buffers that a group uses, and the number of each operand's buffer, by instruction and name.

    Buffers with the same elements have one number. Operands that packed constants replace are left out.
    """
    numbers: dict[object, int] = {}
    buffers: list[Buffer] = []
    places: list[dict[str, int]] = []
    for instruction, constants in zip(group, packed, strict=True):
        found = {}
        size = instruction.operand("dest").type.size
        for spec, buffer in instruction.operands():
            if spec.name in constants:
                continue
            place = _elements(buffer, size)
            if place not in numbers:
                numbers[place] = len(buffers)
                buffers.append(buffer)
            found[spec.name] = numbers[place]
        places.append(found)
    return buffers, places


def _elements(buffer: Buffer, size: int) -> object:
    """Key of a buffer's elements for results of `size`: equal for buffers that give each result the same one.

    Only buffers of that size may differ in shape: smaller ones are spread along the axes that they lack.
    """
    shape, layout = buffer.type.shape, buffer.layout
    if buffer.is_contiguous and buffer.type.size == size:
        return buffer.root, buffer.type.size, layout.offset
    strides = tuple(step for size, step in zip(shape, layout.strides, strict=True) if size != 1)
    return buffer.root, shape, layout.offset, strides


def _epilogue_call(group: list[Instruction], target: VectorTarget) -> Call:
    """The call of a group with an epilogue.

    The first instruction passes its results through the others before it stores them, or adds them up for
    a mean.
    """
    mean = group[-1] if ends_in_mean(group) else None
    elementwise = group[:-1] if mean else group
    head, followers = _storing(group[0], result_place(group, target)), elementwise[1:]
    kernels = [parse_kernel(instruction.kernel, target) for instruction in followers]
    packed = [stored_arrays(kernel, i, target) for kernel, i in zip(kernels, followers, strict=True)]
    buffers, (own, *places) = _numbered(
        elementwise, [parse_kernel(head.kernel, target).constants(head, target), *packed]
    )
    made = {own["dest"], *(found["dest"] for found in places)}
    beside = sorted({place for found in places for place in found.values()} - made)

    def epilogue(e: Emitter, start: Value, given: Sequence[Value], tables: Sequence[Value]) -> Epilogue:
        members = _epilogue_members(followers, places, packed, tables, target, e)
        sink = None if mean is None else GlobalMean.of(e, *_mean_memories(mean, start, target))
        starts = dict(zip(beside, given, strict=True))
        return StackEpilogue(members, own["dest"], start, starts, sink)

    arrays = tuple(array for constants in packed for array in constants.values())
    blank = _epilogue_members(followers, places, packed, [None] * len(arrays), target)
    keys = tuple(_member_key(kernel, member) for kernel, member in zip(kernels, blank, strict=True))
    summed = () if mean is None else _mean_memories(mean, None, target)
    alone = _instruction_call(head, target, _Ending(len(beside), len(arrays), epilogue))
    # The operand of a mean is never stored: only its strides count, and the address is that of the means.
    means = head.operand("dest") if mean is None else mean.operand("dest")
    stored = tuple(means if buffer is head.operand("dest") else buffer for buffer in alone.buffers)
    return replace(
        alone,
        name="_".join(instruction.operation.opcode for instruction in group),
        key=(*alone.key, own["dest"], *keys, *summed),
        buffers=(*stored, *(buffers[place] for place in beside)),
        arrays=(*alone.arrays, *arrays),
        group=tuple(group),
        cost=alone.cost + sum(parse_kernel(i.kernel, target).cost(i, target) for i in group[1:]),
    )


def _epilogue_members(
    followers: Sequence[Instruction],
    places: Sequence[Mapping[str, int]],
    packed: Sequence[Mapping[str, Array]],
    given: Sequence[Value],
    target: VectorTarget,
    e: Emitter | None = None,
) -> tuple[Member, ...]:
    """Members of an epilogue, in the order in which they process results, with addresses of their tables."""
    tables, found = iter(given), []
    for instruction, placed, constants in zip(followers, places, packed, strict=True):
        memories = {
            spec.name: memory_of(None, buffer, target)
            for spec, buffer in instruction.operands()
            if spec.name in placed
        }
        named = {name: next(tables) for name in constants}
        if e is not None:
            memories = with_read_parameters(e, instruction.operation, memories, named.get(PARAMETERS))
        found.append(Member(instruction.operation, memories, placed, named, False, False))
    return tuple(found)


def _mean_memories(mean: Instruction, start: Value, target: VectorTarget) -> tuple[Memory, Memory]:
    """Memories of a global mean: its operand, which is never stored, and its results from `start` on."""
    return memory_of(None, mean.operand("src"), target), memory_of(start, mean.operand("dest"), target)


def _storing(instruction: Instruction, place: Buffer) -> Instruction:
    """The instruction with its result, of its own type, stored in the elements of `place`.

    That has its shape, or its size and no gaps.
    """
    dest = instruction.operand("dest")
    if same_place(dest, place):
        return instruction
    offsets = (0,) * len(dest.type.shape) if dest.type.shape == place.type.shape else ()
    moved = Buffer(dest.name, dest.type, BufferKind.VIEW, base=place, offsets=offsets)
    return replace(instruction, buffers=tuple(moved if b is dest else b for b in instruction.buffers))


def _elementwise(instruction: Instruction, target: VectorTarget) -> Elementwise:
    kernel: Kernel = parse_kernel(instruction.kernel, target)
    if not isinstance(kernel, Elementwise):
        raise InternalError(f"{instruction.name} is stacked, but its kernel is {instruction.kernel}")
    return kernel


def _member_key(kernel: Kernel, member: Member) -> tuple[object, ...]:
    operation = member.operation
    return (
        operation,
        compared_operands(kernel, operation, member.memories, member.tables),
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
