"""Base class of kernels: tuning parameters as data, and an emitter of one LLVM function's body."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from qglow.core.errors import InternalError
from qglow.core.text import Lexer, build, format_attributes, parse_attributes
from qglow.core.types import Array
from qglow.instructions.operation import Operation
from qglow.instructions.program import Instruction, Padding
from qglow.kernels.emit.builder import Value
from qglow.kernels.emit.emitter import Emitter
from qglow.kernels.emit.operand import Memory, without_scale
from qglow.kernels.emit.packing import ColumnPacking
from qglow.kernels.emit.target import OwnKernels, VectorTarget

MOST_VARIANTS = 8
"""Most settings of one kernel that are measured for an instruction, besides the cheapest by estimate."""


@dataclass(frozen=True)
class Part:
    """Lanes of a vector that are contiguous in memory: the first, their number, and the first one's address.

    `channel` is the first lane's channel, counted from the first channel of the tile.
    """

    lane: int
    count: int
    pointer: Value
    channel: int = 0


@dataclass(frozen=True)
class ChannelSlice:
    """Contiguous channels that a tile computes: vectors of 32-bit lanes, the last may be partial.

    `joined` pixels lie one after the other in these vectors, each with all `channels`.
    """

    lanes: int
    vectors: int
    channels: int
    joined: int = 1


@dataclass(frozen=True)
class MeanSink(ABC):
    """A mean over all positions of an image, for which a kernel adds up its results instead of storing them.

    `pointer` is the address of the first image's means, `image_bytes` the distance to the next image's.
    There is room for the sums of one slice of channels at a time.
    """

    images: int
    pointer: Value
    image_bytes: int

    @abstractmethod
    def start(self, e: Emitter, channels: ChannelSlice) -> None:
        """Set the sums of a slice's channels to zero."""

    @abstractmethod
    def add(self, e: Emitter, tile: Sequence[tuple[Value, Sequence[Part]]]) -> None:
        """Add a tile's results to the sums: vectors of bytes as memory would hold them, with their parts."""

    @abstractmethod
    def finish(self, e: Emitter, channels: ChannelSlice, pointer: Value) -> None:
        """Compute the means of a slice from its sums, and store them at `pointer`."""


class Epilogue(ABC):
    """Operations on results in registers, before they are stored or added up in a `mean_sink`."""

    mean_sink: MeanSink | None = None

    @property
    @abstractmethod
    def element_bytes(self) -> int:
        """Bytes of one element of what is stored."""

    @abstractmethod
    def fetch(self, e: Emitter, pointer: Value, count: int) -> None:
        """Emit prefetches of what belongs to `count` results that go to an address."""

    @abstractmethod
    def apply(self, e: Emitter, results: Value, parts: Sequence[Part]) -> Value:
        """Compute the vector to store from results, both as memory holds them; `parts` say where they go."""


@dataclass(frozen=True)
class Site:
    """Everything that a kernel needs to emit the code of one instruction.

    `operands` are those that are present and not replaced by `constants`; both by name.
    `scratch` is the address of 64-byte aligned working memory, None if none was asked for.
    `epilogue` is applied to results before they are stored.
    """

    e: Emitter
    instruction: Instruction
    target: VectorTarget
    operands: Mapping[str, Memory]
    constants: Mapping[str, Value]
    scratch: Value | None = None
    epilogue: Epilogue | None = None

    @property
    def operation(self) -> Any:
        """The instruction's operation, for its attributes."""
        return self.instruction.operation

    @property
    def mean_sink(self) -> MeanSink | None:
        """The sink that adds up results for a mean instead of storing them, or None."""
        return None if self.epilogue is None else self.epilogue.mean_sink

    def __getitem__(self, name: str) -> Memory:
        return self.operands[name]


@dataclass(frozen=True)
class Kernel(ABC):
    """One way to execute an instruction. Subclasses are frozen dataclasses; fields tune them.

    Instructions of equal operation, types, layouts and kernel share one function, so whatever the code
    depends on in the contents of constants has to be a field as well. Where `uses_scales` is False, their
    types may differ in scales: the code reads these from constants or does not depend on them. Only
    kernels with `has_epilogue` apply the epilogue of their site to int8 results, only those that
    `passes_floats` to float results too, and only those with `accumulates_mean` its mean sink. Those that
    `limits_live` leave out what does not matter of their result.
    """

    name: ClassVar[str]
    uses_scales: ClassVar[bool] = True
    has_epilogue: ClassVar[bool] = False
    passes_floats: ClassVar[bool] = False
    accumulates_mean: ClassVar[bool] = False
    limits_live: ClassVar[bool] = False

    def describe(self) -> str:
        """Return the kernel as text, as in listings; `parse_kernel` reads it back."""
        return self.name + format_attributes(self)

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """Zero-point padding that the kernel would like around operands, by name.

        A wish: the kernel also works where the buffer's padding is smaller.
        """
        return {}

    def constants(self, instruction: Instruction, target: VectorTarget) -> dict[str, Array]:
        """Arrays to store next to the code, by name.

        An array with the name of a constant operand replaces that operand. Other constant operands are
        stored dense; int8 activations among them have the target's bias added.
        """
        return {}

    def packings(self, instruction: Instruction, target: VectorTarget) -> dict[str, ColumnPacking]:
        """Packings of constant matrices whose columns look-ups may read, by name of the operand."""
        return {}

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Bytes of working memory; only for operations that declare a scratch operand."""
        return 0

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """Return an operand without the properties that the code for an operation does not depend on."""
        return memory if self.uses_scales else without_scale(memory)

    def reads_parameters(self, instruction: Instruction, target: VectorTarget) -> bool:
        """Whether code reads the scales and zero points of operands at run time instead of embedding them.

        Such code may depend on whether a zero point is held as 0; any other dependence on these numbers has
        to be in `decided`.
        """
        return False

    def decided(self, operation: Operation, memories: Mapping[str, Memory]) -> tuple[object, ...]:
        """Facts about scales and zero points that code depends on, although it reads them at run time."""
        return ()

    def variants(self, instruction: Instruction, target: VectorTarget) -> list[Kernel]:
        """Other settings of this kernel that are worth measuring, the most promising first.

        At most `MOST_VARIANTS`. They give the same bits, and wish for the same padding and scratch.
        """
        return []

    @abstractmethod
    def cost(self, instruction: Instruction, target: VectorTarget) -> float:
        """Estimated cycles of one call."""

    @abstractmethod
    def emit(self, site: Site) -> None:
        """Emit the body. The caller adds the return."""


Factory = Callable[[Instruction, VectorTarget], list[Kernel]]
"""Function that returns the candidates for an instruction on a target, an empty list where none fits."""

KERNEL_CLASSES: dict[str, type[Kernel]] = {}
FACTORIES: dict[str, list[Factory]] = {}
_PARSED: dict[tuple[str, str], Kernel] = {}
"""Kernels by their text and the target's name: layers of a model share few, and kernels are immutable."""

K = TypeVar("K", bound=type[Kernel])


def kernel(cls: K) -> K:
    """Class decorator: make a kernel known to `parse_kernel` by its name."""
    if KERNEL_CLASSES.setdefault(cls.name, cls) is not cls:
        raise ValueError(f"kernel {cls.name} is declared twice")
    return cls


def candidates_for(*operations: type[Operation]) -> Callable[[Factory], Factory]:
    """Decorator of a factory of candidates for these operations."""

    def add(factory: Factory) -> Factory:
        for operation in operations:
            FACTORIES.setdefault(operation.opcode, []).append(factory)
        return factory

    return add


def own_kernels(classes: Sequence[type[Kernel]], factories: Mapping[type[Operation], Factory]) -> OwnKernels:
    """Collect the kernels that only one target has: classes, and factories of candidates by operation."""
    return OwnKernels(
        {cls.name: cls for cls in classes},
        {operation.opcode: (factory,) for operation, factory in factories.items()},
    )


def factories_for(operation: Operation, target: VectorTarget) -> list[Factory]:
    """Factories of candidates for an operation: those for all targets first, then the target's own."""
    return [*FACTORIES.get(operation.opcode, ()), *target.own_kernels.factories.get(operation.opcode, ())]


def parse_kernel(text: str, target: VectorTarget) -> Kernel:
    """Read back a kernel from the text that `describe` wrote. Raises InternalError for an unknown name."""
    key = text, target.name
    if key not in _PARSED:
        _PARSED[key] = _parsed(text, target)
    return _PARSED[key]


def _parsed(text: str, target: VectorTarget) -> Kernel:
    lexer = Lexer(text)
    name = lexer.name()
    cls: type[Kernel] | None = KERNEL_CLASSES.get(name) or target.own_kernels.classes.get(name)
    if cls is None:
        raise InternalError(f"no kernel is called '{name}'; is its family imported?")
    return build(cls, parse_attributes(lexer), lexer)
