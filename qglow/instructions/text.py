"""The listing of a program, printed and parsed.

    function mymodel
    declare {
      %bias     = WeightVar float<5>     const    // size: 20  // users: @in 0
      %output_1 = WeightVar float<3 x 5> mutable  // size: 60  // users: @out 0
      ; size = 80 bytes
    }
    arena 4096
    code {
      0 %x      = allocactivation float<3 x 5> {padding=[..]} at 64  // size: 60  // users: ..
      1 %y      = tensorview float<3 x 2> @in %x {offsets=[0, 1]}
      2 %Gemm_0 = fullyconnected @out %x, @in %a, @in none, @in %b {..} kernel ".." stack 0 from [".."]
    }

The arena's size and the offsets in it (`at`) are there once memory is planned. `@in none` is
an absent operand before a present one; `live %count [extent, inner]` says which elements of results
matter, and `summed %count` which terms of sums; `from` names graph nodes when they are not just the
instruction's own name. Functions inside of an instruction follow it; their names are their own.
Comments are computed and not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from qglow.core.text import (
    AttributeValue,
    Lexer,
    build,
    format_attributes,
    format_name,
    format_value,
    parse_attributes,
    parse_type,
    quote,
)
from qglow.core.text import parse_value as parse_attribute_value
from qglow.core.types import Array, format_float
from qglow.instructions.operation import OPERATIONS, Access, Operand, Operation
from qglow.instructions.ops.memory import AllocActivation, DeallocActivation, TensorView
from qglow.instructions.program import (
    NO_PADDING,
    Buffer,
    BufferKind,
    Instruction,
    Live,
    Padding,
    Program,
)

DEEPEST_BODY = 20


def print_program(program: Program) -> str:
    """The listing of `program`, ending with a newline."""
    users = _users(program)
    lines = [f"function {format_name(program.name)}", "declare {"]
    lines += _declarations([*program.constants, *program.placeholders], users)
    lines.append("}")
    if program.arena_size is not None:
        lines.append(f"arena {program.arena_size}")
    lines.append("code {")
    width = max((len(_reference(i.name)) for i in program.code), default=0)
    digits = len(str(max(len(program.code) - 1, 0)))
    for number, instruction in enumerate(program.code):
        body = _format_instruction(instruction, users)
        lines.append(f"  {number:>{digits}} {_reference(instruction.name):<{width}} = {body}")
        for inner in instruction.operation.bodies:
            lines += [f"      {line}" for line in print_program(inner).splitlines()]
    lines.append("}")
    return "\n".join(lines) + "\n"


def print_instruction(instruction: Instruction) -> str:
    """One instruction as it stands in the listing, without its number and the programs inside of it."""
    return f"{_reference(instruction.name)} = {_format_instruction(instruction, {})}"


def parse_program(text: str, constants: Mapping[str, Array] | None = None) -> Program:
    """The program of a listing.

    `constants` gives the data of every constant; without it they have none. Raises TextError,
    also when a constant's data is missing or has another type.
    """
    lexer = Lexer(text)
    program = _Parser(lexer, constants).program()
    if lexer.peek.kind != "end":
        lexer.fail("text after the end of the function")
    return program


def _users(program: Program) -> dict[Buffer, list[str]]:
    users: dict[Buffer, list[str]] = {}
    for number, instruction in enumerate(program.code):
        for buffer, access in sorted(instruction.accesses(), key=lambda item: item[1] is not Access.IN):
            if not _declares(instruction, buffer):
                users.setdefault(buffer, []).append(f"{access.value} {number}")
    return users


def _declares(instruction: Instruction, buffer: Buffer) -> bool:
    declaring = isinstance(instruction.operation, AllocActivation | TensorView)
    return declaring and instruction.buffers[0] is buffer


def _reference(name: str) -> str:
    return f"%{format_name(name)}"


def _declarations(buffers: list[Buffer], users: Mapping[Buffer, list[str]]) -> list[str]:
    rows = [(_reference(b.name), str(b.type), b.kind.value, _facts(b, users)) for b in buffers]
    total = sum(b.byte_size for b in buffers)
    names, types, sizes = (max((len(c) for c in column), default=0) for column in _columns(rows))
    lines = []
    for name, kind, word, facts in rows:
        size = f"{facts[0]:<{sizes}}"
        comment = " // ".join([size, *facts[1:]]).rstrip()
        lines.append(f"  {name:<{names}} = WeightVar {kind:<{types}} {word:<7}  // {comment}")
    return [*lines, f"  ; size = {total} bytes"]


def _columns(rows: list[tuple[str, str, str, list[str]]]) -> tuple[list[str], list[str], list[str]]:
    return [r[0] for r in rows], [r[1] for r in rows], [r[3][0] for r in rows]


def _facts(buffer: Buffer, users: Mapping[Buffer, list[str]]) -> list[str]:
    facts = [f"size: {buffer.byte_size}"]
    real = buffer.type.real_range()
    if real is not None:
        facts.append(f"real: [{format_float(real[0])}, {format_float(real[1])}]")
    facts.append("users: " + ", ".join(users.get(buffer, ["none"])))
    return facts


def _format_instruction(instruction: Instruction, users: Mapping[Buffer, list[str]]) -> str:
    parts = [instruction.operation.opcode]
    declared = instruction.buffers[0] if instruction.buffers else None
    declares = declared is not None and _declares(instruction, declared)
    if declares and declared is not None:
        parts.append(str(declared.type))
    operands = _format_operands(instruction, skip=1 if declares else 0)
    attributes = format_attributes(instruction.operation)
    if declares and declared is not None and declared.padding != NO_PADDING:
        attributes = f"{{padding={format_value(declared.padding)}}}"
    parts += [part for part in (operands, attributes) if part]
    if declares and declared is not None and declared.arena_offset is not None:
        parts.append(f"at {declared.arena_offset}")
    if instruction.kernel:
        parts.append(f"kernel {quote(instruction.kernel)}")
    if instruction.stack is not None:
        parts.append(f"stack {instruction.stack}")
    for live in instruction.live:
        parts.append(f"live {_reference(live.count.name)} {format_value((live.extent, live.inner))}")
    if instruction.summed is not None:
        parts.append(f"summed {_reference(instruction.summed.name)}")
    if instruction.origin and instruction.origin != (instruction.name,):
        parts.append(f"from {format_value(instruction.origin)}")
    body = " ".join(parts)
    if declares and declared is not None:
        body += "  // " + "  // ".join(_facts(declared, users))
    return body


def _format_operands(instruction: Instruction, skip: int) -> str:
    pairs = list(zip(instruction.operation.signature, instruction.buffers, strict=True))[skip:]
    parts = []
    for index, (spec, buffer) in enumerate(pairs):
        if buffer is not None:
            parts.append(f"{spec.access.value} {_reference(buffer.name)}")
        elif any(s.access is spec.access and b is not None for s, b in pairs[index + 1 :]):
            parts.append(f"{spec.access.value} none")
    return ", ".join(parts)


class _Parser:
    """Recursive descent over one function of a listing; the names of one inside of another are its own."""

    def __init__(self, lexer: Lexer, constants: Mapping[str, Array] | None, depth: int = 0) -> None:
        self._lexer = lexer
        self._depth = depth
        self._constants = constants
        self._buffers: dict[str, Buffer] = {}

    def program(self) -> Program:
        lexer = self._lexer
        lexer.expect("function")
        program = Program(lexer.name())
        lexer.expect("declare")
        lexer.expect("{")
        while not lexer.accept("}"):
            buffer = self._declaration()
            owner = program.constants if buffer.kind is BufferKind.CONSTANT else program.placeholders
            owner.append(buffer)
        if lexer.accept("arena"):
            program.arena_size = lexer.integer()
        lexer.expect("code")
        lexer.expect("{")
        while not lexer.accept("}"):
            program.code.append(self._instruction(len(program.code)))
        return program

    def _declaration(self) -> Buffer:
        lexer = self._lexer
        name = self._new_name()
        lexer.expect("WeightVar")
        kind = parse_type(lexer)
        if not (lexer.at("const") or lexer.at("mutable")):
            lexer.fail("expected const or mutable")
        buffer = Buffer(name, kind, BufferKind(lexer.next().text))
        if buffer.kind is BufferKind.CONSTANT:
            buffer.data = self._data(buffer)
        self._buffers[name] = buffer
        return buffer

    def _new_name(self) -> str:
        lexer = self._lexer
        lexer.expect("%")
        token = lexer.peek
        name = lexer.name()
        if name in self._buffers:
            lexer.fail(f"a buffer is already called %{name}", token)
        lexer.expect("=")
        return name

    def _data(self, buffer: Buffer) -> Array | None:
        if self._constants is None:
            return None
        if buffer.name not in self._constants:
            self._lexer.fail(f"no data is given for constant %{buffer.name}")
        data = self._constants[buffer.name]
        wanted = buffer.type
        if data.dtype != wanted.element.dtype or data.shape != wanted.shape:
            self._lexer.fail(f"constant %{buffer.name} is {wanted}, its data {data.dtype}{list(data.shape)}")
        return data

    def _instruction(self, number: int) -> Instruction:
        lexer = self._lexer
        if lexer.peek.kind == "number" and lexer.integer() != number:
            lexer.fail(f"this is instruction number {number}")
        name = self._new_name()
        token = lexer.peek
        opcode = lexer.name()
        if opcode not in OPERATIONS:
            lexer.fail(f"no operation is called {opcode}", token)
        if opcode == AllocActivation.opcode:
            return self._allocation(name)
        if opcode == TensorView.opcode:
            return self._view(name)
        cls = OPERATIONS[opcode]
        if cls.varies:
            return self._varying(name, cls)
        buffers = self._operands(cls.signature)
        operation = build(cls, parse_attributes(lexer), lexer)
        return self._clauses(Instruction(name, operation, buffers, origin=self._default_origin(name, cls)))

    def _varying(self, name: str, cls: type[Operation]) -> Instruction:
        """Parse an instruction whose attributes, which follow its operands, say how many there are.

        Programs inside of it come last.
        """
        lexer = self._lexer
        token = lexer.peek
        found: list[tuple[Access, Buffer]] = []
        while lexer.at("@"):
            found.append((self._access(), self._buffer()))
            if not lexer.accept(","):
                break
        attributes = parse_attributes(lexer)
        clauses = self._clauses(Instruction(name, DeallocActivation(), (), origin=(name,)))
        bodies = {body: self._body() for body in cls.body_names}
        operation = build(cls, attributes, lexer, token, **bodies)
        if [spec.access for spec in operation.signature] != [access for access, _ in found]:
            lexer.fail(f"its attributes ask for {len(operation.signature)} operands, not these", token)
        buffers = tuple(buffer for _, buffer in found)
        return replace(clauses, operation=operation, buffers=buffers)

    def _body(self) -> Program:
        if self._depth == DEEPEST_BODY:
            self._lexer.fail(f"programs are nested more than {DEEPEST_BODY} deep")
        return _Parser(self._lexer, self._constants, self._depth + 1).program()

    @staticmethod
    def _default_origin(name: str, cls: type) -> tuple[str, ...]:
        return (name,) if getattr(cls, "touches_memory", True) else ()

    def _allocation(self, name: str) -> Instruction:
        lexer = self._lexer
        buffer = Buffer(name, parse_type(lexer), BufferKind.ACTIVATION)
        attributes = parse_attributes(lexer)
        buffer.padding = self._padding(attributes.pop("padding", NO_PADDING))
        if attributes:
            lexer.fail(f"an allocation has no attribute {next(iter(attributes))}; it has padding")
        if lexer.accept("at"):
            buffer.arena_offset = lexer.integer()
        self._buffers[name] = buffer
        return self._clauses(Instruction(name, AllocActivation(), (buffer,)))

    def _padding(self, value: AttributeValue) -> Padding:
        sizes = [v for v in value if isinstance(v, int) and v >= 0] if isinstance(value, tuple) else []
        if isinstance(value, tuple) and len(value) == 4 == len(sizes):
            return sizes[0], sizes[1], sizes[2], sizes[3]
        self._lexer.fail("padding is [top, left, bottom, right]")

    def _view(self, name: str) -> Instruction:
        lexer = self._lexer
        kind = parse_type(lexer)
        (base,) = self._operands(TensorView.signature[1:])
        operation = build(TensorView, parse_attributes(lexer), lexer)
        buffer = Buffer(name, kind, BufferKind.VIEW, base=base, offsets=operation.offsets)
        self._buffers[name] = buffer
        return self._clauses(Instruction(name, operation, (buffer, base)))

    def _operands(self, signature: tuple[Operand, ...]) -> tuple[Buffer | None, ...]:
        lexer = self._lexer
        found: list[Buffer | None] = []
        while lexer.at("@"):
            token = lexer.peek
            access = self._access()
            while len(found) < len(signature) and self._is_skipped(signature[len(found)], access):
                found.append(None)
            if len(found) == len(signature) or signature[len(found)].access is not access:
                lexer.fail(f"no operand {access.value} is expected here", token)
            found.append(None if lexer.accept("none") else self._buffer())
            if not lexer.accept(","):
                break
        for spec in signature[len(found) :]:
            if not spec.optional:
                lexer.fail(f"operand {spec.access.value} {spec.name} is missing")
            found.append(None)
        return tuple(found)

    @staticmethod
    def _is_skipped(spec: Operand, access: Access) -> bool:
        return spec.optional and spec.access is not access

    def _access(self) -> Access:
        self._lexer.expect("@")
        token = self._lexer.peek
        word = f"@{self._lexer.name()}"
        if word not in {access.value for access in Access}:
            self._lexer.fail(f"unknown access {word}", token)
        return Access(word)

    def _buffer(self) -> Buffer:
        self._lexer.expect("%")
        token = self._lexer.peek
        name = self._lexer.name()
        if name not in self._buffers:
            self._lexer.fail(f"no buffer is called %{name}", token)
        return self._buffers[name]

    def _live(self) -> Live:
        count = self._buffer()
        sizes = parse_attribute_value(self._lexer)
        whole = [v for v in sizes if type(v) is int] if isinstance(sizes, tuple) else []
        if not isinstance(sizes, tuple) or len(sizes) != 2 or len(whole) != 2:
            self._lexer.fail("live places are [extent, inner]")
        return Live(count, whole[0], whole[1])

    def _clauses(self, instruction: Instruction) -> Instruction:
        lexer = self._lexer
        if lexer.accept("kernel"):
            instruction.kernel = lexer.name()
        if lexer.accept("stack"):
            instruction.stack = lexer.integer()
        while lexer.accept("live"):
            instruction.live += (self._live(),)
        if lexer.accept("summed"):
            instruction.summed = self._buffer()
        if lexer.accept("from"):
            names = parse_attribute_value(lexer)
            if not isinstance(names, tuple):
                lexer.fail("expected a list of names")
            instruction.origin = tuple(str(name) for name in names)
        return instruction


def constants_of(program: Program) -> dict[str, Array]:
    """The data of every constant by name, as `parse_program` takes it. Raises KeyError for one without."""
    found: dict[str, Array] = {}
    for buffer in program.all_constants():
        if buffer.data is None:
            raise KeyError(buffer.name)
        found[buffer.name] = buffer.data
    return found
