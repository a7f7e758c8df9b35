"""Operations of instructions: operands with their access and layout, attributes and semantics.

Liveness, buffer sharing, dead stores, stacking and verification are derived from the class attributes
here, so that no pass has a list of operations.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from qglow.core.types import Array, Shape, TensorType


class Access(enum.Enum):
    """Access of an instruction to an operand. The value is its word in the listing."""

    IN = "@in"
    OUT = "@out"
    INOUT = "@inout"
    SCRATCH = "@scratch"


@dataclass(frozen=True, slots=True)
class Operand:
    """One declared operand.

    `strided`: the buffer may be a slice of another or have padding; its last axis is
    contiguous, the other axes have any stride. Operands without it are dense.
    """

    name: str
    access: Access
    optional: bool = False
    strided: bool = False


def out(name: str = "dest", strided: bool = False) -> Operand:
    """An operand that is overwritten whole."""
    return Operand(name, Access.OUT, strided=strided)


def inout(name: str, strided: bool = False) -> Operand:
    """An operand that is updated, or written in part."""
    return Operand(name, Access.INOUT, strided=strided)


def read(name: str = "src", optional: bool = False, strided: bool = False) -> Operand:
    """An operand that is only read."""
    return Operand(name, Access.IN, optional, strided)


def scratch(name: str = "scratch") -> Operand:
    """Optional working memory (dense bytes), whose contents are undefined before and after."""
    return Operand(name, Access.SCRATCH, optional=True)


class TypeErrorInOperation(Exception):
    """Operand types do not fit an operation; the verifier adds the place."""


Types = Mapping[str, TensorType]
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Operation(ABC):
    """Base of all operations; subclasses are frozen dataclasses whose fields are attributes.

    `in_place` pairs of operand names (out, in) may share one buffer of equal type size.
    `data_parallel` operations compute element i of every out operand from element i of the
    in operands of the same shape, so that chains of them can share one loop.
    `has_epilogue` operations may pass results through the data-parallel instructions that
    follow before storing them, or into one that `ends_epilogue` instead of storing them.
    `updates_state`: an @inout placeholder keeps its contents from call to call.
    `sums_products`: each element is one chain of products, to which terms with a factor of zero add nothing.
    `touches_memory` is False for operations that only say where buffers are.
    `varies`: each instance has a signature of its own, which `operand_words` describe.
    `body_names`: fields that hold programs, which the operation runs.
    `hosted` operations are executed by Python while compiled code waits.
    `sees_padding`: the arrays given to `execute` include the buffers' padding.
    `read_slots`, `written_slots`: numbers of operands whose earlier contents matter, and that are written.
    """

    opcode: ClassVar[str]
    signature: ClassVar[tuple[Operand, ...]]
    read_slots: ClassVar[tuple[int, ...]] = ()
    written_slots: ClassVar[tuple[int, ...]] = ()
    in_place: ClassVar[tuple[tuple[str, str], ...]] = ()
    data_parallel: ClassVar[bool] = False
    has_epilogue: ClassVar[bool] = False
    updates_state: ClassVar[bool] = False
    sums_products: ClassVar[bool] = False
    touches_memory: ClassVar[bool] = True
    sees_padding: ClassVar[bool] = False
    hosted: ClassVar[bool] = False
    varies: ClassVar[bool] = False
    operand_words: ClassVar[tuple[str, ...]] = ()
    body_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Derive, from signature and `touches_memory`, the numbers of operands that are read and written."""
        super().__init_subclass__()
        if cls.varies:
            return
        accesses = [spec.access for spec in getattr(cls, "signature", ())] if cls.touches_memory else []
        reading, writing = (Access.IN, Access.INOUT), (Access.OUT, Access.INOUT)
        cls.read_slots = tuple(slot for slot, access in enumerate(accesses) if access in reading)
        cls.written_slots = tuple(slot for slot, access in enumerate(accesses) if access in writing)

    @abstractmethod
    def verify(self, types: Types) -> None:
        """Raise TypeErrorInOperation where the operands' types do not fit."""

    @property
    def state_slots(self) -> tuple[int, ...]:
        """Numbers of the operands that keep their contents from call to call."""
        return self.written_slots if self.updates_state else ()

    @property
    def bodies(self) -> tuple[Any, ...]:
        """The programs that it runs, in the order of `body_names`."""
        return tuple(getattr(self, name) for name in self.body_names)

    @property
    def inside_bytes(self) -> int:
        """Bytes of scratch memory that the programs inside of it take; only once they are planned."""
        return 0

    def updated_slice(self, types: Types) -> tuple[Shape, Shape] | None:
        """Start and shape of the part of its @inout operand that the operation writes.

        It touches nothing else of that operand. None if it reads and writes all of it, so that all of it
        must have been written before.
        """
        return None

    def ends_epilogue(self, types: Types) -> bool:
        """Whether the operation may end an epilogue: it reduces each channel of an image to one element."""
        return False

    @abstractmethod
    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute the operation in numpy: fill the arrays of written operands.

        Arrays have the buffers' logical shapes; the arrays of an `in_place` pair may be the same one.
        """


OPERATIONS: dict[str, type[Operation]] = {}


def register(cls: type[Operation]) -> type[Operation]:
    """Class decorator: make an operation known to the text parser by its opcode."""
    if cls.opcode in OPERATIONS:
        raise ValueError(f"opcode {cls.opcode} is declared twice")
    OPERATIONS[cls.opcode] = cls
    return cls


def require(condition: bool, message: str) -> None:
    """Raise TypeErrorInOperation(message) unless `condition`."""
    if not condition:
        raise TypeErrorInOperation(message)
