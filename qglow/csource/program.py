"""A planned program as one C file: a function for each kind of instruction, and one that calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qglow.bundles.interface import Interface, TensorRole
from qglow.codegen.weights import WeightBlob
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.csource import blocks as blocks
from qglow.csource import elementwise as elementwise
from qglow.csource import experts as experts
from qglow.csource import logic as logic
from qglow.csource import movement as movement
from qglow.csource import products as products
from qglow.csource import ranking as ranking
from qglow.csource import recurrence as recurrence
from qglow.csource import reduction as reduction
from qglow.csource.control import structured
from qglow.csource.preamble import preamble
from qglow.csource.writer import EMITTERS, MeaningsInC, SourceSite
from qglow.instructions.operation import Access
from qglow.instructions.ops.control import Structured
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


@dataclass(frozen=True)
class _Call:
    """A call of a function with these operands, or an instruction with bodies where there is no function."""

    function: str
    buffers: tuple[Buffer, ...]
    instruction: Instruction


class SourceProgram:
    """The text of a program, and its constants. Raises UnsupportedError for what there is no C for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._blob = WeightBlob()
        self._constants: dict[Buffer, int] = {}
        self._functions = MeaningsInC()
        self._kernels: dict[str, str] = {}
        """Names of functions by their text without the name."""
        self._bodies: dict[Program, tuple[str, str]] = {}
        """Name and text of the function of each body, those inside of others first."""
        refused = [i for i in _inside(program) if not _is_known(i)]
        if refused:
            kinds = ", ".join(sorted({i.operation.opcode for i in refused}))
            raise UnsupportedError(f"{refused[0].name}: there is no C for {kinds}; choose another target")
        self._calls = self._calls_of(program)

    @property
    def weights(self) -> Array:
        """The constants, as the code expects them."""
        return self._blob.finish()

    def text(self, interface: Interface) -> str:
        """The file, which defines PREFIX_run."""
        parts = [f'#include "{interface.prefix}.h"\n', preamble(), *self._functions.texts()]
        parts += [text.replace("@", name, 1) for text, name in self._kernels.items()]
        parts += [text for _, text in self._bodies.values()]
        return "\n".join([*parts, self._run(interface)])

    def _calls_of(self, program: Program) -> list[_Call]:
        calls = []
        for instruction in program.code:
            if isinstance(instruction.operation, Structured):
                for body in instruction.operation.bodies:
                    self._add_body(body)
                calls.append(self._placed(instruction, ""))
            elif instruction.operation.touches_memory:
                calls.append(self._call(instruction))
        return calls

    def _add_body(self, body: Program) -> None:
        """The function of a body; its table has the addresses of its placeholders."""
        calls = self._calls_of(body)
        numbers = {buffer: number for number, buffer in enumerate(body.placeholders)}

        def address(buffer: Buffer) -> str:
            root = buffer.root
            if root in numbers:
                start = buffer.layout.offset * buffer.type.element.size
                return f"(unsigned char *)table[{numbers[root]}] + {start}"
            return self._planned(buffer)

        name = f"body{len(self._bodies)}"
        head = f"static void {name}(unsigned char *arena, const unsigned char *weights, void *const *table)"
        lines = [head, "{", "    (void)arena;", "    (void)weights;", "    (void)table;"]
        self._bodies[body] = name, "\n".join([*lines, *self._statements(calls, address), "}", ""])

    def _statements(self, calls: list[_Call], address: Callable[[Buffer], str]) -> list[str]:
        """Lines that execute calls."""
        lines = []
        for call in calls:
            operands = [address(buffer) for buffer in call.buffers]
            if call.function:
                lines.append(f"    {call.function}({', '.join(operands)});")
            else:
                names = [self._bodies[body][0] for body in call.instruction.operation.bodies]
                lines += structured(call.instruction, operands, names)
        return lines

    def _call(self, instruction: Instruction) -> _Call:
        site = SourceSite(instruction, self._functions)
        EMITTERS[instruction.operation.opcode](site)
        operands = [(s, b) for s, b in instruction.operands() if s.access is not Access.SCRATCH]
        parameters = [
            f"{'const ' if spec.access is Access.IN else ''}void *{spec.name}" for spec, _ in operands
        ]
        body = "\n".join(site.writer.lines)
        text = f"static void @({', '.join(parameters)})\n{{\n{body}\n}}\n"
        name = self._kernels.setdefault(text, f"kernel{len(self._kernels)}_{instruction.operation.opcode}")
        return self._placed(instruction, name)

    def _placed(self, instruction: Instruction, function: str) -> _Call:
        """A call whose constants have places."""
        operands = [
            buffer
            for spec, buffer in instruction.operands()
            if spec.access is not Access.SCRATCH or not function
        ]
        for root in (buffer.root for buffer in operands):
            if root.kind is BufferKind.CONSTANT and root not in self._constants:
                assert root.data is not None
                self._constants[root] = self._blob.add(root.data)
        return _Call(function, tuple(operands), instruction)

    def _run(self, interface: Interface) -> str:
        prefix = interface.prefix
        lines = [
            f"void {prefix}_run(void *arena_, const void *weights_, const {prefix}_io *io)",
            "{",
            "    unsigned char *const arena = arena_;",
            "    const unsigned char *const weights = weights_;",
            "    (void)arena;",
            "    (void)weights;",
        ]
        copies = interface.converted_inputs()
        for tensor in interface.tensors:
            if tensor.name in copies:
                place = copies[tensor.name]
                lines += _flipped(f"arena + {place}", f"io->{tensor.field}", tensor.byte_size)
        lines += self._statements(self._calls, lambda buffer: self._address(buffer, interface))
        for tensor in interface.outputs:
            if tensor.is_converted(interface.bias):
                lines += _flipped(f"io->{tensor.field}", f"io->{tensor.field}", tensor.byte_size)
        places = interface.kept_outputs()
        for tensor in interface.declared:
            source, size = f"arena + {places[tensor.output]}", tensor.byte_size
            change = _flipped if tensor.is_converted(interface.bias) else _copied
            lines += change(f"io->{tensor.field}", source, size)
        return "\n".join([*lines, "}", ""])

    def _planned(self, buffer: Buffer) -> str:
        """The address of a constant, or of memory in the arena of the program or body."""
        root, start = buffer.root, buffer.layout.offset * buffer.type.element.size
        if root.kind is BufferKind.CONSTANT:
            return f"weights + {self._constants[root] + start}"
        assert root.arena_offset is not None
        return f"arena + {root.arena_offset + start}"

    def _address(self, buffer: Buffer, interface: Interface) -> str:
        root, start = buffer.root, buffer.layout.offset * buffer.type.element.size
        if root.kind in (BufferKind.CONSTANT, BufferKind.ACTIVATION):
            return self._planned(buffer)
        copies = interface.converted_inputs() | interface.kept_outputs()
        if root.name in copies:
            return f"arena + {copies[root.name] + start}"
        tensor = next(t for t in interface.tensors if t.name == root.name)
        const = "const " if tensor.role is TensorRole.INPUT else ""
        return f"({const}unsigned char *)io->{tensor.field} + {start}"


def _inside(program: Program) -> Iterator[Instruction]:
    """The instructions of a program that do something, those of its bodies among them."""
    for instruction in program.code:
        if instruction.operation.touches_memory or isinstance(instruction.operation, Structured):
            yield instruction
        for body in instruction.operation.bodies:
            yield from _inside(body)


def _is_known(instruction: Instruction) -> bool:
    return isinstance(instruction.operation, Structured) or instruction.operation.opcode in EMITTERS


def _copied(dest: str, src: str, size: int) -> list[str]:
    return [f"    memcpy({dest}, {src}, {size}u);"] if size else []


def _flipped(dest: str, src: str, size: int) -> list[str]:
    """Bytes with their highest bit turned over: int8 as uint8, or the other way round."""
    if size == 0:
        return []
    return [
        f"    for (size_t i = 0; i < {size}u; i++) {{",
        f"        ((unsigned char *)({dest}))[i] = ((const unsigned char *)({src}))[i] ^ 0x80u;",
        "    }",
    ]
