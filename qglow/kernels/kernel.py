"""What a kernel is: tiling parameters as data, and an emitter of one LLVM function's body."""

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
from qglow.kernels.builder import Emitter, Value
from qglow.kernels.isa import Isa
from qglow.kernels.operand import Memory, without_scale

MOST_VARIANTS = 8
"""Settings of one kernel that are measured for an instruction, besides the one with the least estimate."""


@dataclass(frozen=True)
class Part:
    """Neighbours in memory among a vector's lanes: the first one, how many, and its address.

    `channel` is that of the first one, counted from the first of its tile.
    """

    lane: int
    count: int
    pointer: Value
    channel: int = 0


@dataclass(frozen=True)
class Slice:
    """Neighbouring channels that a tile has results of: vectors of 32-bit lanes, the last may be partial.

    `joined` pixels lie one after the other in these vectors, each with all of the channels.
    """

    lanes: int
    vectors: int
    channels: int
    joined: int = 1


@dataclass(frozen=True)
class Pool(ABC):
    """A mean over all positions of an image, of results that are added up and not stored.

    `pointer` is the address of the first mean, `image_bytes` how far those of the next image are.
    There is room for the sums of one slice of channels at a time.
    """

    images: int
    pointer: Value
    image_bytes: int

    @abstractmethod
    def start(self, e: Emitter, channels: Slice) -> None:
        """No sums yet of any channel of a slice."""

    @abstractmethod
    def add(self, e: Emitter, tile: Sequence[tuple[Value, Sequence[Part]]]) -> None:
        """Add up the results of a tile, as memory would hold them, each vector of bytes with its parts."""

    @abstractmethod
    def finish(self, e: Emitter, channels: Slice, pointer: Value) -> None:
        """Store the means of a slice."""


class Epilogue(ABC):
    """What happens to int8 results in registers before they are stored, or added up for a `pool`."""

    pool: Pool | None = None

    @abstractmethod
    def apply(self, e: Emitter, results: Value, parts: Sequence[Part]) -> Value:
        """What to store for a vector of results, both as memory holds them. `parts` say where they go."""


@dataclass(frozen=True)
class Site:
    """All that an emitter needs of its place.

    `operands` holds the present operands but for those that `constants` replaces; both by name.
    `scratch` is the address of 64-byte aligned working memory, None where none was asked for.
    `epilogue` is what to do with int8 results before they are stored.
    """

    e: Emitter
    instruction: Instruction
    isa: Isa
    operands: Mapping[str, Memory]
    constants: Mapping[str, Value]
    scratch: Value | None = None
    epilogue: Epilogue | None = None

    @property
    def operation(self) -> Any:
        """The instruction's operation, for its attributes."""
        return self.instruction.operation

    @property
    def pool(self) -> Pool | None:
        """What adds up results that are not stored."""
        return None if self.epilogue is None else self.epilogue.pool

    def __getitem__(self, name: str) -> Memory:
        return self.operands[name]


@dataclass(frozen=True)
class Kernel(ABC):
    """One way to execute an instruction. Subclasses are frozen dataclasses; fields tune them.

    Instructions of equal operation, types, layouts and kernel share one function, so whatever
    code takes from the contents of constants is a field too. Where `uses_scales` is False,
    types may differ in their scales, which then are in constants or do not matter. Only kernels with
    `has_epilogue` heed the epilogue of their site, and only those with `has_pool` a pool of it.
    """

    name: ClassVar[str]
    uses_scales: ClassVar[bool] = True
    has_epilogue: ClassVar[bool] = False
    has_pool: ClassVar[bool] = False

    def describe(self) -> str:
        """The kernel in words, as the listing has it; `parse_kernel` reads it back."""
        return self.name + format_attributes(self)

    def paddings(self, instruction: Instruction) -> dict[str, Padding]:
        """Zero-point padding that the kernel would like around operands, by name.

        A wish: the kernel also works where the buffer's padding is smaller.
        """
        return {}

    def constants(self, instruction: Instruction, isa: Isa) -> dict[str, Array]:
        """Arrays to be stored beside the code, by name.

        A name of an operand replaces that (constant) operand. Other constant operands are
        stored dense, int8 activations among them with the bias added.
        """
        return {}

    def scratch_bytes(self, instruction: Instruction) -> int:
        """Working memory; only for operations that declare a scratch operand."""
        return 0

    def compared(self, operation: Operation, memory: Memory) -> Memory:
        """An operand, without what the code for an operation does not depend on."""
        return memory if self.uses_scales else without_scale(memory)

    def variants(self, instruction: Instruction, isa: Isa) -> list[Kernel]:
        """Other settings of this kernel that are worth measuring, the most promising first.

        At most `MOST_VARIANTS`. They give the same bits, and wish for the same padding and scratch.
        """
        return []

    @abstractmethod
    def cost(self, instruction: Instruction, isa: Isa) -> float:
        """Estimated cycles of one call."""

    @abstractmethod
    def emit(self, site: Site) -> None:
        """Emit the body. The caller adds the return."""


Factory = Callable[[Instruction, Isa], list[Kernel]]
"""Candidates for an instruction on a target; an empty list where none fits."""

KERNEL_CLASSES: dict[str, type[Kernel]] = {}
FACTORIES: dict[str, list[Factory]] = {}

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


def parse_kernel(text: str) -> Kernel:
    """The kernel that `describe` wrote. Raises InternalError for a name that nobody declared."""
    lexer = Lexer(text)
    name = lexer.name()
    cls = KERNEL_CLASSES.get(name)
    if cls is None:
        raise InternalError(f"no kernel is called '{name}'; is its family imported?")
    return build(cls, parse_attributes(lexer), lexer)
