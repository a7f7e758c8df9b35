"""Branches and loops in machine code: a body is a function that entries call with a table of its own.

    void body(i8* arena, i8* weights, i8** placeholders)

One thread executes such an instruction, whatever the size of the team.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from llvmlite import ir

from qglow.instructions.ops.control import Branch, Loop, Structured, aligned_size
from qglow.instructions.program import Buffer, Instruction
from qglow.kernels.emit.builder import I8, I64, PTR, Value
from qglow.kernels.emit.emitter import Emitter

RunBody = Callable[[int, Value, Value], None]
"""Emits a call of the body of this number, with the addresses of its arena and its table."""
_MOST = 2**63 - 1


def emit_structured(
    e: Emitter, instruction: Instruction, addresses: Sequence[Value], run: RunBody, spare: int = 0
) -> None:
    """Emit an instruction with bodies; `addresses` are those of its operands, in their order.

    spare: places that `run` needs in a table behind those of the placeholders.
    """
    names = [spec.name for spec, _ in instruction.operands()]
    buffers = {spec.name: buffer for spec, buffer in instruction.operands()}
    operation = instruction.operation
    assert isinstance(operation, Structured)
    site = _Site(e, operation, dict(zip(names, addresses, strict=True)), buffers, spare)
    if isinstance(operation, Loop):
        _emit_loop(site, operation, run)
    else:
        assert isinstance(operation, Branch)
        _emit_branch(site, operation, run)


@dataclass(frozen=True)
class _Site:
    """An instruction under emission: addresses and buffers of its operands by name.

    spare: places of a table behind those of the placeholders.
    """

    e: Emitter
    operation: Structured
    at: Mapping[str, Value]
    buffers: Mapping[str, Buffer]
    spare: int

    def numbered(self, prefix: str, numbers: range) -> list[Value]:
        """Addresses of the operands of this name and these numbers."""
        return [self.at[f"{prefix}{number}"] for number in numbers]

    def room(self, size: int) -> Value:
        """Memory of the function's stack."""
        with self.e.at_entry():
            memory = self.e.b.alloca(ir.ArrayType(I8, max(size, 1)))
        memory.align, memory.type = max(8, self.e.target.pointer_bytes), PTR
        return memory

    @property
    def arena(self) -> Value:
        """Address of the arena of the bodies."""
        return self.e.offset(self.at["scratch"], self.operation.arena_start)


@dataclass(frozen=True)
class _Table:
    """The table of a body: addresses of its placeholders."""

    e: Emitter
    address: Value

    @staticmethod
    def of(site: _Site) -> _Table:
        count = max(site.operation.places(number).whole for number in range(len(site.operation.bodies)))
        return _Table(site.e, site.room((count + site.spare) * site.e.target.pointer_bytes))

    def _place(self, number: int) -> Value:
        return self.e.offset(self.address, number * self.e.target.pointer_bytes)

    def put(self, number: int, address: Value) -> None:
        """Let a placeholder be at an address."""
        self.e.store(address, self._place(number), align=self.e.target.pointer_bytes)

    def put_all(self, first: int, addresses: Sequence[Value]) -> None:
        """Let placeholders from a number on be at addresses."""
        for number, address in enumerate(addresses, first):
            self.put(number, address)

    def get(self, number: int) -> Value:
        """The address of a placeholder."""
        return self.e.load(self._place(number), PTR, align=self.e.target.pointer_bytes)


def _emit_branch(site: _Site, operation: Branch, run: RunBody) -> None:
    e, table = site.e, _Table.of(site)
    given = site.numbered("captured", range(operation.captured))
    given += site.numbered("result", range(operation.results))
    table.put_all(0, given)
    with e.b.if_else(_is_true(e, site.at["condition"])) as arms:
        for number, arm in enumerate(arms):
            with arm:
                table.put_all(len(given), site.numbered("state", operation.places(number).state))
                run(number, site.arena, table.address)


def _emit_loop(site: _Site, operation: Loop, run: RunBody) -> None:
    e, table, parts = site.e, _Table.of(site), operation.places(0)
    number, flag = site.room(8), site.room(1)
    states = _States.of(site, table)
    table.put(0, number)
    first_source = 1 + operation.carried
    table.put_all(first_source + len(operation.scanned), site.numbered("captured", range(operation.captured)))
    if operation.conditional:
        table.put(parts.inputs, flag)
    table.put_all(parts.inputs + parts.results, site.numbered("state", parts.state))
    states.begin()
    before, most = e.b.block, _most_rounds(site, operation)
    before = e.b.block
    test, body, done = (e.b.append_basic_block(f"rounds.{name}") for name in ("test", "body", "done"))
    e.b.branch(test)
    e.b.position_at_end(test)
    index = e.b.phi(I64)
    index.add_incoming(e.index(0), before)
    e.b.cbranch(e.b.icmp_signed("<", index, most), body, done)
    e.b.position_at_end(body)
    e.store(index, number)
    _put_slices(site, table, "source", operation.scanned, first_source, index)
    rows_at = parts.inputs + parts.results - len(operation.collected)
    _put_slices(site, table, "rows", operation.collected, rows_at, index)
    run(0, site.arena, table.address)
    states.turn()
    following = e.b.add(index, e.index(1))
    index.add_incoming(following, e.b.block)
    if operation.conditional:
        e.b.cbranch(_is_true(e, flag), test, done)
    else:
        e.b.branch(test)
    e.b.position_at_end(done)
    states.end()


@dataclass(frozen=True)
class _States:
    """Values that a loop carries: each lies where it starts, then in its result and in a spare by turns."""

    site: _Site
    table: _Table
    starts: Sequence[Value]
    ends: Sequence[Value]
    spares: Sequence[Value]

    @staticmethod
    def of(site: _Site, table: _Table) -> _States:
        kinds, places, place = site.operation.spares, [], 0
        for kind in kinds:
            places.append(site.e.offset(site.at["scratch"], place))
            place += aligned_size(kind)
        starts, ends = (site.numbered(name, range(len(kinds))) for name in ("start", "result"))
        return _States(site, table, starts, ends, places)

    @property
    def _first_result(self) -> int:
        parts, operation = self.site.operation.places(0), self.site.operation
        assert isinstance(operation, Loop)
        return parts.inputs + int(operation.conditional)

    def begin(self) -> None:
        """Let the first round read what the loop starts with, and write the results."""
        self.table.put_all(1, self.starts)
        self.table.put_all(self._first_result, self.ends)

    def turn(self) -> None:
        """Let the next round read what this one wrote, and write the other place."""
        e = self.site.e
        for number, (end, spare) in enumerate(zip(self.ends, self.spares, strict=True)):
            written = self.table.get(self._first_result + number)
            other = e.b.select(e.b.icmp_unsigned("==", written, end), spare, end)
            self.table.put(1 + number, written)
            self.table.put(self._first_result + number, other)

    def end(self) -> None:
        """Bring what the last round wrote, or what the loop starts with, into the results."""
        e = self.site.e
        for number, end in enumerate(self.ends):
            written = self.table.get(1 + number)
            with e.when(e.b.icmp_unsigned("!=", written, end)):
                _copy(e, end, written, self.site.buffers[f"result{number}"].type.byte_size)


def _most_rounds(site: _Site, operation: Loop) -> Value:
    """The number of rounds (i64) that nothing inside of the loop may exceed."""
    e = site.e
    most = e.index(_MOST if operation.rounds is None else operation.rounds)
    if operation.limited:
        most = e.minimum(most, e.load(site.at["limit"], I64))
    if operation.started:
        most = e.b.select(_is_true(e, site.at["condition"]), most, e.index(0))
    return most


def _put_slices(
    site: _Site, table: _Table, prefix: str, back: Sequence[bool], first: int, index: Value
) -> None:
    """Let placeholders be at the slices of a round; where `back`, the first round has the last one."""
    e = site.e
    for number, turned in enumerate(back):
        kind = site.buffers[f"{prefix}{number}"].type
        rounds = max(kind.shape[0], 1)
        size = kind.byte_size // rounds
        place = e.b.sub(e.index(rounds - 1), index) if turned else index
        table.put(first + number, e.offset(site.at[f"{prefix}{number}"], e.b.mul(place, e.index(size))))


def _is_true(e: Emitter, address: Value) -> Value:
    return e.b.icmp_unsigned("!=", e.load(address, I8), ir.Constant(I8, 0))


def _copy(e: Emitter, target: Value, source: Value, size: int) -> None:
    """Copy bytes, eight at a time."""
    whole = size // 8
    if whole:
        with e.loop(0, whole) as place:
            at = e.scaled(place, 8)
            e.store(e.load(e.offset(source, at), I64), e.offset(target, at))
    for place in range(whole * 8, size):
        e.store(e.load(e.offset(source, place), I8), e.offset(target, place))
