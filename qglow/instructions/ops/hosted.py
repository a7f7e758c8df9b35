"""The instruction that compiled code does not execute: it calls Python, which calls onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.errors import TextError
from qglow.host.nodes import HostedNodes
from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require


@register
@dataclass(frozen=True)
class HostCall(Operation):
    """result0, result1, ... = ONNX nodes applied to argument0, argument1, ...

    The attributes are those of `HostedNodes`; they say how many operands there are.
    """

    opcode: ClassVar[str] = "hostcall"
    hosted: ClassVar[bool] = True
    varies: ClassVar[bool] = True
    operand_words: ClassVar[tuple[str, ...]] = ("@out result0, ...", "@in argument0, ...")

    kinds: str
    model: str
    arguments: tuple[str, ...]
    results: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for attributes that `HostedNodes` refuses."""
        assert self.nodes

    @property
    def signature(self) -> tuple[Operand, ...]:  # type: ignore[override]
        """Results first."""
        results = [out(f"result{number}") for number in range(len(self.results))]
        return (*results, *(read(f"argument{number}") for number in range(len(self.arguments))))

    @property
    def written_slots(self) -> tuple[int, ...]:  # type: ignore[override]
        """Numbers of the results."""
        return tuple(range(len(self.results)))

    @property
    def read_slots(self) -> tuple[int, ...]:  # type: ignore[override]
        """Numbers of the arguments."""
        return tuple(range(len(self.results), len(self.results) + len(self.arguments)))

    @property
    def nodes(self) -> HostedNodes:
        """The nodes, which can be run."""
        return HostedNodes(self.kinds, self.model, self.arguments, self.results)

    def verify(self, types: Types) -> None:
        """Operands have the types that the attributes state."""
        try:
            wanted = (*self.nodes.result_types, *self.nodes.argument_types)
        except TextError as error:
            require(False, f"a type in its attributes does not parse: {error}")
            return
        for spec, kind in zip(self.signature, wanted, strict=True):
            require(types[spec.name] == kind, f"{spec.name} is {types[spec.name]}, the nodes have {kind}")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Run the nodes in onnxruntime."""
        inputs = [arrays[f"argument{number}"] for number in range(len(self.arguments))]
        for number, result in enumerate(self.nodes.run(inputs)):
            arrays[f"result{number}"][...] = result
