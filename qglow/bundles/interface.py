"""Interface of a bundle: its tensors as C has them, and the sizes of its memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from qglow.bundles.identifiers import distinct_identifiers
from qglow.codegen.memory import ALIGNMENT
from qglow.codegen.weights import READ_SLACK
from qglow.core.types import Array, ElementType, TensorType
from qglow.instructions.program import Program
from qglow.kernels.emit.operand import is_int8_activation
from qglow.runtime.signature import Signature
from qglow.runtime.streaming import state_element, state_kinds

VERSION = 1
"""Version of the C interface and of the manifest."""

_C_TYPES = {
    ElementType.FLOAT: "float",
    ElementType.DOUBLE: "double",
    ElementType.FLOAT16: "uint16_t",
    ElementType.BFLOAT16: "uint16_t",
    ElementType.INT8: "int8_t",
    ElementType.INT16: "int16_t",
    ElementType.INT32: "int32_t",
    ElementType.INT64: "int64_t",
    ElementType.UINT8: "uint8_t",
    ElementType.UINT16: "uint16_t",
    ElementType.UINT32: "uint32_t",
    ElementType.UINT64: "uint64_t",
    ElementType.BOOL: "uint8_t",
}
ELEMENTS = tuple(_C_TYPES)
"""Element types in the order of their numbers in the tensor table."""


def rounded(size: int) -> int:
    """The least multiple of the alignment of memory that is at least `size`."""
    return size + -size % ALIGNMENT


class TensorRole(Enum):
    """Use of a tensor: the caller fills an input, reads an output, and keeps a state between calls."""

    INPUT = "input"
    OUTPUT = "output"
    STATE = "state"


@dataclass(frozen=True)
class BundleTensor:
    """A tensor of the caller's. field: its name in C. kind: its type, where `unsigned` int8 is uint8 to C.

    output: of the program, which a state that was declared takes over after a run; empty for all others.
    """

    name: str
    field: str
    kind: TensorType
    role: TensorRole
    output: str = ""

    @property
    def element(self) -> ElementType:
        """The element type that callers see."""
        return ElementType.UINT8 if self.is_shifted else self.kind.element

    @property
    def is_shifted(self) -> bool:
        """Whether callers see int8 activations as uint8, 128 more."""
        return self.kind.unsigned and is_int8_activation(self.kind)

    @property
    def c_type(self) -> str:
        """The C type of an element."""
        return _C_TYPES[self.element]

    @property
    def element_number(self) -> int:
        """Number of the element type in the tensor table."""
        return ELEMENTS.index(self.element)

    @property
    def byte_size(self) -> int:
        """Bytes of the dense tensor."""
        return self.kind.byte_size

    @property
    def scale(self) -> float:
        """Scale of a tensor with one, else 0."""
        quantization = self.kind.quantization
        return 0.0 if quantization is None or quantization.axis is not None else quantization.scale

    @property
    def zero_point(self) -> int:
        """Zero point in the element type that callers see; 0 without a scale."""
        quantization = self.kind.quantization
        if quantization is None or quantization.axis is not None:
            return 0
        return quantization.zero_point + 128 * self.is_shifted

    @property
    def start(self) -> Array:
        """The element that a state begins with, as callers see it: the one that stands for 0."""
        return state_element(self.kind)

    def is_converted(self, bias: int) -> bool:
        """Whether memory of a target with this bias of activations holds other bytes than callers have.

        States that were not declared are the program's alone, in its own form.
        """
        is_seen = self.role is not TensorRole.STATE or bool(self.output)
        return is_seen and is_int8_activation(self.kind) and bool(bias) != self.kind.unsigned


@dataclass(frozen=True)
class Interface:
    """Names, tensors and sizes. prefix: of all symbols. tensors: inputs, outputs and states, in their order.

    parts: numbers of parts of all steps for `threads` of the caller's; none where there is one thread.
    activations: bytes of the program's arena. weights: bytes of the constants, with those that may be read
    past their end. bias: number that the target adds to int8 activations in memory.
    """

    prefix: str
    tensors: tuple[BundleTensor, ...]
    activations: int
    weights: int
    bias: int
    threads: int = 1
    parts: tuple[int, ...] = ()

    @staticmethod
    def of(
        prefix: str,
        signature: Signature,
        activations: int,
        weights: int,
        bias: int,
        states: Mapping[str, str] | None = None,
    ) -> Interface:
        """The interface of a program with this signature.

        states: inputs that are states to the caller, each with the output that the next run reads there.
        Raises UsageError for pairs that the program does not have.
        """
        pairs = dict(states or {})
        declared = state_kinds(signature.inputs, signature.outputs, pairs)
        roles: list[tuple[TensorRole, Mapping[str, TensorType]]] = [
            (TensorRole.INPUT, _without(signature.inputs, pairs)),
            (TensorRole.OUTPUT, _without(signature.outputs, set(pairs.values()))),
            (TensorRole.STATE, {**signature.state, **declared}),
        ]
        named = [(name, kind, role) for role, types in roles for name, kind in types.items()]
        fields = distinct_identifiers([name for name, _, _ in named], "tensor")
        tensors = tuple(
            BundleTensor(name, field, kind, role, pairs.get(name, ""))
            for field, (name, kind, role) in zip(fields, named, strict=True)
        )
        return Interface(prefix, tensors, activations, weights, bias)

    def of_role(self, role: TensorRole) -> tuple[BundleTensor, ...]:
        """The tensors of a role, in the model's order."""
        return tuple(tensor for tensor in self.tensors if tensor.role is role)

    @property
    def inputs(self) -> tuple[BundleTensor, ...]:
        """The inputs, in the model's order."""
        return self.of_role(TensorRole.INPUT)

    @property
    def outputs(self) -> tuple[BundleTensor, ...]:
        """The outputs, in the model's order."""
        return self.of_role(TensorRole.OUTPUT)

    @property
    def states(self) -> tuple[BundleTensor, ...]:
        """The states, which begin with elements that stand for 0."""
        return self.of_role(TensorRole.STATE)

    def converted_inputs(self) -> dict[str, int]:
        """Places in the arena of copies of inputs, and of declared states, whose bytes the program has
        otherwise, by name."""
        place, found = rounded(self.activations), {}
        for tensor in self._copied:
            found[tensor.name] = place
            place += rounded(tensor.byte_size)
        return found

    @property
    def declared(self) -> tuple[BundleTensor, ...]:
        """The states that take over an output of the program after a run."""
        return tuple(tensor for tensor in self.states if tensor.output)

    def kept_outputs(self) -> dict[str, int]:
        """Places in the arena of outputs that states take over, by name: what a run reads is overwritten at
        its end."""
        place, found = rounded(self.activations) + self._copies, {}
        for tensor in self.declared:
            if tensor.output not in found:
                found[tensor.output] = place
                place += rounded(tensor.byte_size)
        return found

    @property
    def finishes(self) -> bool:
        """Whether something is left to do behind the program: outputs to convert, or states to take over."""
        return bool(self.declared) or any(tensor.is_converted(self.bias) for tensor in self.outputs)

    @property
    def arena(self) -> int:
        """Bytes of the arena that `run` needs."""
        kept = {tensor.output: rounded(tensor.byte_size) for tensor in self.declared}
        return rounded(self.activations) + self._copies + sum(kept.values()) + READ_SLACK

    @property
    def _copies(self) -> int:
        return sum(rounded(tensor.byte_size) for tensor in self._copied)

    @property
    def _copied(self) -> list[BundleTensor]:
        return [tensor for tensor in (*self.inputs, *self.declared) if tensor.is_converted(self.bias)]

    def selftest_places(self) -> dict[str, int]:
        """Places of outputs and states in the memory of the self-test, by name."""
        place, found = rounded(self.arena), {}
        for tensor in (*self.outputs, *self.states):
            found[tensor.name] = place
            place += rounded(tensor.byte_size)
        return found

    @property
    def selftest_arena(self) -> int:
        """Bytes of the arena that the self-test needs: it keeps outputs and states there."""
        kept = (*self.outputs, *self.states)
        return rounded(self.arena) + sum(rounded(tensor.byte_size) for tensor in kept)


def arena_bytes(program: Program, bias: int, states: Mapping[str, str] | None = None) -> int:
    """Bytes of the arena that `run` of a planned program needs in a bundle: the program's own, copies of what
    callers have in another form, outputs that states take over, and what kernels may read behind the end.

    Raises UsageError for states that the program does not have.
    """
    return Interface.of("", Signature.of(program), program.arena_size or 0, 0, bias, states).arena


def _without(types: Mapping[str, TensorType], names: Collection[str]) -> dict[str, TensorType]:
    return {name: kind for name, kind in types.items() if name not in names}
