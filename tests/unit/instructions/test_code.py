"""Code that a pass changes: after every edit its index says what a walk over all instructions finds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from qglow.core.types import float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.operation import Access
from qglow.instructions.ops.elementwise import Clip, ElementAdd
from qglow.instructions.ops.memory import AllocActivation, Copy, DeallocActivation, TensorView
from qglow.instructions.passes.code import Code
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program
from tests.unit.instructions.programs import random_program

DECLARATIONS = (AllocActivation, DeallocActivation, TensorView)


def assert_indexed(code: Code, program: Program, known: list[Buffer]) -> None:
    """Hold every answer, also on `known` buffers, against a walk over the instructions in their order."""
    order = list(code.order)
    at = {instruction: index for index, instruction in enumerate(order)}
    for buffer in {*known, *buffers(code)}:
        wanted = [
            (instruction, slot)
            for instruction in order
            if not isinstance(instruction.operation, DECLARATIONS)
            for slot, operand in enumerate(instruction.buffers)
            if operand is not None and operand.root is buffer.root
        ]
        found = code.touches(buffer)
        assert [(touch.instruction, touch.slot) for touch in found] == wanted
        assert code.first(buffer) is (wanted[0][0] if wanted else None)
        assert code.last(buffer) is (wanted[-1][0] if wanted else None)
        assert [touch.writes for touch in found] == [
            instruction.operation.signature[slot].access is not Access.IN for instruction, slot in wanted
        ]
        assert code.views(buffer) == [
            i.operand("dest")
            for i in order
            if isinstance(i.operation, TensorView) and i.operand("dest").root is buffer.root
        ]
        made = [i for i in order if isinstance(i.operation, AllocActivation | TensorView)]
        assert code.declaration(buffer) is next((i for i in made if i.operand("dest") is buffer), None)
        ends = [i for i in order if isinstance(i.operation, DeallocActivation)]
        assert code.deallocation(buffer) is next((i for i in ends if i.operand("src") is buffer), None)
        middle = order[len(order) // 2]
        writers = [t.instruction for t in found if t.writes and at[t.instruction] < at[middle]]
        assert code.last_write_before(buffer, middle) is (writers[-1] if writers else None)
        for first, last in ((order[0], middle), (middle, order[-1]), (middle, middle)):
            inside = [touch for touch in found if at[first] <= at[touch.instruction] <= at[last]]
            assert list(code.touches_within(buffer, first, last)) == inside
    assert all(code.precedes(one, other) for one, other in zip(order, order[1:], strict=False))
    code.finish()
    assert program.code == order


Edit = Callable[[Code, random.Random], object]


def steps(code: Code) -> list[Instruction]:
    return [i for i in code.order if not isinstance(i.operation, DECLARATIONS)]


def activations(code: Code) -> list[Buffer]:
    declared = [i.operand("dest") for i in code.order if isinstance(i.operation, AllocActivation)]
    return [buffer for buffer in declared if buffer.kind is BufferKind.ACTIVATION]


def buffers(code: Code) -> list[Buffer]:
    return list({b: None for i in code.order for b in i.buffers if b is not None})


def remove(code: Code, rng: random.Random) -> None:
    code.remove(rng.choice(steps(code)))


def insert(code: Code, rng: random.Random) -> None:
    operands = (rng.choice(buffers(code)), rng.choice(buffers(code)))
    anchor = rng.choice([None, *code.order])
    code.insert_before(anchor, Instruction(code.unique_name("added"), Copy(), operands))


def move(code: Code, rng: random.Random) -> None:
    moved, *anchors = rng.sample(list(code.order), 3)
    code.move_before(rng.choice([None, *anchors]), moved)


def change(code: Code, rng: random.Random) -> None:
    new = (rng.choice(buffers(code)), rng.choice(buffers(code)), rng.choice(buffers(code)))
    order, changed = list(code.order), rng.choice(steps(code))
    code.change(changed, ElementAdd(), new)
    assert list(code.order) == order and changed.buffers == new


def replace(code: Code, rng: random.Random) -> None:
    old = rng.choice(activations(code))
    others = [b for b in buffers(code) if b.root is not old and b.kind is not BufferKind.CONSTANT]
    new = rng.choice(others)
    kept = code.replace_buffer(old, new)
    assert kept in (old, new) and kept.name == new.name


def turn_into_view(code: Code, rng: random.Random) -> None:
    inner = rng.choice(activations(code))
    base = rng.choice([b for b in buffers(code) if b.root is not inner])
    made = code.turn_into_view(inner, base, ())
    assert code.declaration(inner) is made and inner.root is base.root and code.deallocation(inner) is None


def declare(code: Code, rng: random.Random) -> None:
    buffer, anchor = rng.choice(buffers(code)), rng.choice(steps(code))
    code.declare_before(buffer, anchor)
    declared = code.declaration(buffer)
    assert declared is None or code.precedes(declared, anchor)


def deallocate(code: Code, rng: random.Random) -> None:
    buffer = rng.choice(buffers(code))
    code.deallocate_after_last_use(buffer)
    end = code.deallocation(buffer.root)
    uses = [code.last(buffer), *[code.declaration(view) for view in code.views(buffer)]]
    assert end is None or all(use is None or code.precedes(use, end) for use in uses)


EDITS: tuple[Edit, ...] = (remove, insert, move, change, replace, turn_into_view, declare, deallocate)


@pytest.mark.parametrize("seed", range(12))
def test_the_index_stays_that_of_a_walk_over_the_code(seed: int) -> None:
    program, rng = random_program(seed), random.Random(seed)
    code = Code(program)
    known = buffers(code)
    assert_indexed(code, program, known)
    for _ in range(16):
        rng.choice((*EDITS, turn_into_view, replace))(code, rng)
        assert_indexed(code, program, known)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_each_edit_alone_keeps_the_index(edit: Edit) -> None:
    for seed in range(4):
        program, rng = random_program(seed), random.Random(seed)
        code = Code(program)
        known = buffers(code)
        edit(code, rng)
        assert_indexed(code, program, known)


def added(reads: int) -> tuple[Code, Buffer, Buffer]:
    """Code that copies `a` to `b`, which instructions then read."""
    builder = ProgramBuilder("p")
    x, y = (builder.placeholder(name, float_type(4)) for name in "xy")
    a, b = (builder.activation(name, float_type(4)) for name in "ab")
    builder.emit("fill", Clip(0.0, 1.0), a, x)
    builder.emit("copy", Copy(), b, a)
    for number in range(reads):
        builder.emit(f"read{number}", Copy(), y, b)
    return Code(builder.finish()), a, b


def test_the_buffer_that_is_touched_more_often_stays_and_takes_the_name() -> None:
    code, a, b = added(reads=3)
    assert code.replace_buffer(b, a) is b and b.name == "a"
    assert code.declaration(b) is not None and code.declaration(a) is None
    code, a, b = added(reads=0)
    assert code.replace_buffer(b, a) is a and code.declaration(a) is not None


def test_views_of_buffers_that_become_one_are_in_the_order_of_the_code() -> None:
    builder = ProgramBuilder("p")
    x = builder.placeholder("x", float_type(4))
    a, b = (builder.activation(name, float_type(4)) for name in "ab")
    for index, base in enumerate((a, b, a, b)):
        view = builder.view(f"v{index}", base, float_type(2, 2))
        builder.emit(f"fill{index}", Copy(), view, x)
    program = builder.finish()
    code = Code(program)
    code.turn_into_view(a, b, ())
    places = [code.order.place(code.declaration(view)) for view in code.views(b)]  # type: ignore[arg-type]
    assert len(places) == 5 and places == sorted(places)
    assert_indexed(code, program, buffers(code))


def test_memory_lasts_as_long_as_its_views() -> None:
    builder = ProgramBuilder("p")
    x, y = (builder.placeholder(name, float_type(4)) for name in "xy")
    a = builder.activation("a", float_type(4))
    builder.emit("fill", Copy(), a, x)
    view = builder.view("view", a, float_type(2, 2))
    builder.emit("last", Copy(), y, x)
    code = Code(builder.finish())
    declared, end = code.declaration(view), code.deallocation(a)
    assert declared is not None and end is not None
    code.move_before(None, declared)
    code.deallocate_after_last_use(a)
    assert code.order[-2:] == [declared, end]


def test_names_are_taken_once() -> None:
    code, _, _ = added(reads=1)
    assert [code.unique_name(name) for name in ("a", "a", "copy", "new", "new")] == [
        "a__1", "a__2", "copy__1", "new", "new__1",
    ]  # fmt: skip
