"""Text of C functions: loops, and elements of operands by their indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from qglow.core.errors import UnsupportedError
from qglow.core.types import HALF_TYPES, ElementType, TensorType
from qglow.instructions.operation import Operation
from qglow.instructions.program import Buffer, Instruction
from qglow.numerics.scalar.algebra import Real
from qglow.numerics.scalar.c_source import CAlgebra, c_function, c_procedure
from qglow.numerics.scalar.clamps import clip
from qglow.numerics.scalar.half import rounded

SUFFIXES = {
    ElementType.FLOAT: "f32",
    ElementType.DOUBLE: "f64",
    ElementType.INT8: "i8",
    ElementType.INT16: "i16",
    ElementType.INT32: "i32",
    ElementType.INT64: "i64",
    ElementType.UINT8: "u8",
    ElementType.UINT16: "u16",
    ElementType.UINT32: "u32",
    ElementType.UINT64: "u64",
    ElementType.BOOL: "u8",
    ElementType.FLOAT16: "f16",
    ElementType.BFLOAT16: "bf16",
}
"""Ends of the names of the functions that read and write elements."""


REALS = (ElementType.FLOAT, ElementType.DOUBLE, ElementType.FLOAT16, ElementType.BFLOAT16)
_LARGEST = 2**63 - 1


def c_type(element: ElementType) -> str:
    """The type that C computes with: integers of 64 bits, and float for 16-bit floats."""
    if element in REALS:
        return "double" if element is ElementType.DOUBLE else "float"
    return "uint64_t" if element is ElementType.UINT64 else "int64_t"


class Writer:
    """Lines of C with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 1

    def line(self, text: str) -> None:
        """A line of its own."""
        self.lines.append(f"{'    ' * self._depth}{text}")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A block behind a line such as `if (x)`."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def loops(self, shape: Sequence[int], name: str = "i") -> Iterator[list[str]]:
        """Nested loops over a shape; gives the indices. An axis of one place has index 0 and no loop."""
        indices = [f"{name}{axis}" if extent != 1 else "0" for axis, extent in enumerate(shape)]
        opened = 0
        for index, extent in zip(indices, shape, strict=True):
            if index != "0":
                self.line(f"for (int32_t {index} = 0; {index} < {extent}; {index}++) {{")
                self._depth += 1
                opened += 1
        yield indices
        for _ in range(opened):
            self._depth -= 1
            self.line("}")


@dataclass
class MeaningsInC:
    """Scalar functions that a file needs, by their text, and their names."""

    names: dict[str, str] = field(default_factory=dict)

    def of(self, meaning: Callable[..., Real], operands: int = 1) -> str:
        """The name of a function with this meaning."""
        text = c_function("@", meaning, operands)
        return self.names.setdefault(text, f"function{len(self.names)}")

    def of_several(self, meaning: Callable[..., Sequence[Real]], operands: int, results: int) -> str:
        """The name of a function that writes several results behind its operands."""
        text = c_procedure("@", meaning, operands, results)
        return self.names.setdefault(text, f"function{len(self.names)}")

    def texts(self) -> list[str]:
        """The definitions, in the order of their first use."""
        return [text.replace("@(", f"{name}(", 1) for text, name in self.names.items()]


@dataclass
class SourceSite:
    """Everything that the C of one instruction is made with.

    Operands are pointers to their first elements; their layouts are constants of the text.
    """

    instruction: Instruction
    functions: MeaningsInC
    writer: Writer = field(default_factory=Writer)

    @property
    def operation(self) -> Any:
        """The operation, for its attributes."""
        return self.instruction.operation

    def has(self, name: str) -> bool:
        """Whether an operand is present."""
        return self.instruction.optional(name) is not None

    def buffer(self, name: str) -> Buffer:
        """The buffer of an operand."""
        return self.instruction.operand(name)

    def kind(self, name: str) -> TensorType:
        """The type of an operand."""
        return self.buffer(name).type

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an operand."""
        return tuple(self.kind(name).shape)

    def place(self, name: str, indices: Sequence[str]) -> str:
        """Distance in elements from the first one; an axis of one place repeats."""
        buffer = self.buffer(name)
        terms = [
            index if stride == 1 else f"({index}) * {stride}"
            for index, stride, extent in zip(indices, buffer.layout.strides, buffer.type.shape, strict=True)
            if extent != 1 and index != "0"
        ]
        return " + ".join(terms) or "0"

    def load(self, name: str, indices: Sequence[str]) -> str:
        """An element."""
        return f"load_{self.suffix(name)}({name}, {self.place(name, indices)})"

    def store(self, name: str, indices: Sequence[str], value: str) -> None:
        """Write an element, of 16-bit floats the nearest to a float32."""
        if self.kind(name).is_half:
            element = next(word for word, kind in HALF_TYPES.items() if kind is self.kind(name).element)
            value = f"{self.functions.of(lambda x: rounded(x, element))}({value})"
        self.writer.line(f"store_{self.suffix(name)}({name}, {self.place(name, indices)}, {value});")

    def suffix(self, name: str) -> str:
        """End of the names of the functions that read and write elements of an operand."""
        kind = self.kind(name)
        if kind.element not in SUFFIXES:
            raise UnsupportedError(f"{self.instruction.name}: there is no C for {kind.element.value} yet")
        return SUFFIXES[kind.element]

    def lowest(self, name: str) -> str:
        """The number that every element of an operand is at least."""
        return self._end(name, -math.inf)

    def highest(self, name: str) -> str:
        """The number that every element of an operand is at most."""
        return self._end(name, math.inf)

    def _end(self, name: str, infinite: float) -> str:
        kind = self.kind(name)
        if kind.is_float:
            return number(infinite)
        if kind.element is ElementType.BOOL:
            return "0" if infinite < 0 else "1"
        limits = np.iinfo(kind.element.dtype)
        end = int(limits.min if infinite < 0 else limits.max)
        return f"({end + 1}LL - 1)" if end < 0 else f"{end}{'ULL' if end > _LARGEST else 'LL'}"

    # Arithmetic

    def steps(self, name: str, indices: Sequence[str]) -> str:
        """An element of integers less its zero point, an int32."""
        zero = self.kind(name).quantization
        assert zero is not None
        return f"({self.load(name, indices)} - ({zero.zero_point}))"

    def real(self, name: str, indices: Sequence[str]) -> str:
        """An element as the real that it stands for, in float32."""
        quantization = self.kind(name).quantization
        if quantization is None:
            return self.load(name, indices)
        return f"(float){self.steps(name, indices)} * {number(quantization.scale)}"

    def saturated(self, name: str, value: str, low: int | None = None, high: int | None = None) -> str:
        """A float32 in steps of an operand as its integer within bounds (the end of rules 1, 5 and 6)."""
        to = self.kind(name).quantization
        assert to is not None
        least = to.smallest if low is None else low
        most = to.largest if high is None else high
        bounds = f"{number(float(least - to.zero_point))}, {number(float(most - to.zero_point))}"
        return f"saturated({value}, {bounds}, {to.zero_point})"

    def rescaled(
        self,
        name: str,
        total: str,
        factor: str,
        low: int | None = None,
        high: int | None = None,
        label: str = "scaled",
    ) -> str:
        """An int32 times a float32 as the integer of an operand within bounds: rule 5, or rule 10.

        label: the name of the float32 in between.
        """
        if self.in_fixed_point(name):
            return self.placed(name, f"fixed_product({total}, {factor})", low, high)
        return self.saturated(name, self.declared("float", label, f"(float){total} * {factor}"), low, high)

    def in_fixed_point(self, name: str) -> bool:
        """Whether sums are brought to the scale of an operand in fixed point."""
        to = self.kind(name).quantization
        return to is not None and to.fixed_point

    def placed(self, name: str, steps: str, low: int | None = None, high: int | None = None) -> str:
        """An int32 in steps of an operand as its integer within bounds (the end of rule 10)."""
        to = self.kind(name).quantization
        assert to is not None
        least = (to.smallest if low is None else low) - to.zero_point
        most = (to.largest if high is None else high) - to.zero_point
        return f"placed({steps}, {least}, {most}, {to.zero_point})"

    def quantized(self, name: str, value: str) -> str:
        """A real as an operand holds it: rule 1, or the real itself."""
        to = self.kind(name).quantization
        return value if to is None else self.saturated(name, f"({value}) / {number(to.scale)}")

    def clipped(self, value: str, low: float, high: float) -> str:
        """A float32 within real bounds."""
        if low == -math.inf and high == math.inf:
            return value
        return f"{self.functions.of(lambda x: clip(x, low, high))}({value})"

    def declared(self, kind: str, name: str, value: str) -> str:
        """Declare a value under a name. Every operation of floats has a statement of its own, so that
        compilers which fuse within expressions do not."""
        self.writer.line(f"const {kind} {name} = {value};")
        return name


def number(value: float) -> str:
    """A float32 constant, exactly."""
    return CAlgebra().real(value).text


Emitter = Callable[[SourceSite], None]
EMITTERS: dict[str, Emitter] = {}
"""What writes the C of an operation, by its opcode."""


def emits(*operations: type[Operation] | str) -> Callable[[Emitter], Emitter]:
    """Decorator of the emitter of these operations, given by class or opcode."""

    def add(emitter: Emitter) -> Emitter:
        for operation in operations:
            EMITTERS[operation if isinstance(operation, str) else operation.opcode] = emitter
        return emitter

    return add
