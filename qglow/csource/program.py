"""A planned program as one C file: a function for each kind of instruction, and one that calls them."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.bundles.interface import Interface, TensorRole
from qglow.codegen.weights import WeightBlob
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.csource import elementwise as elementwise
from qglow.csource import logic as logic
from qglow.csource import movement as movement
from qglow.csource import products as products
from qglow.csource import reduction as reduction
from qglow.csource.preamble import preamble
from qglow.csource.writer import EMITTERS, MeaningsInC, SourceSite
from qglow.instructions.operation import Access
from qglow.instructions.program import Buffer, BufferKind, Instruction, Program


@dataclass(frozen=True)
class _Call:
    """A call of a function with these operands."""

    function: str
    buffers: tuple[Buffer, ...]


class SourceProgram:
    """The text of a program, and its constants. Raises UnsupportedError for what there is no C for."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._blob = WeightBlob()
        self._constants: dict[Buffer, int] = {}
        self._functions = MeaningsInC()
        self._kernels: dict[str, str] = {}
        """Names of functions by their text without the name."""
        work = [i for i in program.code if i.operation.touches_memory]
        refused = [i for i in work if i.operation.opcode not in EMITTERS]
        if refused:
            kinds = ", ".join(sorted({i.operation.opcode for i in refused}))
            raise UnsupportedError(f"{refused[0].name}: there is no C for {kinds} yet; choose another target")
        self._calls = [self._call(instruction) for instruction in work]

    @property
    def weights(self) -> Array:
        """The constants, as the code expects them."""
        return self._blob.finish()

    def text(self, interface: Interface) -> str:
        """The file, which defines PREFIX_run."""
        parts = [f'#include "{interface.prefix}.h"\n', preamble(), *self._functions.texts()]
        parts += [text.replace("@", name, 1) for text, name in self._kernels.items()]
        return "\n".join([*parts, self._run(interface)])

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
        for _, buffer in operands:
            root = buffer.root
            if root.kind is BufferKind.CONSTANT and root not in self._constants:
                assert root.data is not None
                self._constants[root] = self._blob.add(root.data)
        return _Call(name, tuple(buffer for _, buffer in operands))

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
        for tensor in interface.inputs:
            if tensor.name in copies:
                place = copies[tensor.name]
                lines += _flipped(f"arena + {place}", f"io->{tensor.field}", tensor.byte_size)
        lines += [
            f"    {call.function}({', '.join(self._address(b, interface) for b in call.buffers)});"
            for call in self._calls
        ]
        for tensor in interface.outputs:
            if tensor.is_converted(interface.bias):
                lines += _flipped(f"io->{tensor.field}", f"io->{tensor.field}", tensor.byte_size)
        return "\n".join([*lines, "}", ""])

    def _address(self, buffer: Buffer, interface: Interface) -> str:
        root, start = buffer.root, buffer.layout.offset * buffer.type.element.size
        if root.kind is BufferKind.CONSTANT:
            return f"weights + {self._constants[root] + start}"
        if root.kind is BufferKind.ACTIVATION:
            assert root.arena_offset is not None
            return f"arena + {root.arena_offset + start}"
        copies = interface.converted_inputs()
        if root.name in copies:
            return f"arena + {copies[root.name] + start}"
        tensor = next(t for t in interface.tensors if t.name == root.name)
        const = "const " if tensor.role is TensorRole.INPUT else ""
        return f"({const}unsigned char *)io->{tensor.field} + {start}"


def _flipped(dest: str, src: str, size: int) -> list[str]:
    """Bytes with their highest bit turned over: int8 as uint8, or the other way round."""
    return [
        f"    for (size_t i = 0; i < {size}u; i++) {{",
        f"        ((unsigned char *)({dest}))[i] = ((const unsigned char *)({src}))[i] ^ 0x80u;",
        "    }",
    ]
