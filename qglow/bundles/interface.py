"""Interface of a bundle: its tensors as C has them, and the sizes of its memory."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.bundles.identifiers import distinct_identifiers
from qglow.codegen.memory import ALIGNMENT
from qglow.codegen.weights import READ_SLACK
from qglow.core.types import ElementType, TensorType
from qglow.kernels.emit.operand import is_int8_activation

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


@dataclass(frozen=True)
class BundleTensor:
    """An input or an output. field: its name in C. kind: its type; callers see `unsigned` int8 as uint8."""

    name: str
    field: str
    kind: TensorType
    is_input: bool

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

    def is_converted(self, bias: int) -> bool:
        """Whether memory of a target with this bias of activations holds other bytes than callers have."""
        return is_int8_activation(self.kind) and bool(bias) != self.kind.unsigned


@dataclass(frozen=True)
class Interface:
    """Names, tensors and sizes. prefix: of all symbols. inputs, outputs: in the model's order.

    activations: bytes of the program's arena. weights: bytes of the constants, with those that may be read
    past their end. bias: number that the target adds to int8 activations in memory.
    """

    prefix: str
    inputs: tuple[BundleTensor, ...]
    outputs: tuple[BundleTensor, ...]
    activations: int
    weights: int
    bias: int

    @staticmethod
    def of(
        prefix: str,
        inputs: dict[str, TensorType],
        outputs: dict[str, TensorType],
        activations: int,
        weights: int,
        bias: int,
    ) -> Interface:
        """The interface of a program with these inputs and outputs."""
        fields = distinct_identifiers([*inputs, *outputs], "tensor")
        kinds = [(*item, True) for item in inputs.items()] + [(*item, False) for item in outputs.items()]
        tensors = [
            BundleTensor(name, field, kind, is_input)
            for field, (name, kind, is_input) in zip(fields, kinds, strict=True)
        ]
        taken, given = tuple(tensors[: len(inputs)]), tuple(tensors[len(inputs) :])
        return Interface(prefix, taken, given, activations, weights, bias)

    @property
    def tensors(self) -> tuple[BundleTensor, ...]:
        """Inputs, then outputs: the order of pointers that `run` takes."""
        return (*self.inputs, *self.outputs)

    def converted_inputs(self) -> dict[str, int]:
        """Places in the arena of copies of inputs whose bytes the program has otherwise, by name."""
        place, found = rounded(self.activations), {}
        for tensor in self.inputs:
            if tensor.is_converted(self.bias):
                found[tensor.name] = place
                place += rounded(tensor.kind.byte_size)
        return found

    @property
    def arena(self) -> int:
        """Bytes of the arena that `run` needs."""
        copies = sum(rounded(t.kind.byte_size) for t in self.inputs if t.is_converted(self.bias))
        return rounded(self.activations) + copies + READ_SLACK

    def selftest_outputs(self) -> dict[str, int]:
        """Places of the outputs in the memory of the self-test, by name."""
        place, found = rounded(self.arena), {}
        for tensor in self.outputs:
            found[tensor.name] = place
            place += rounded(tensor.kind.byte_size)
        return found

    @property
    def selftest_arena(self) -> int:
        """Bytes of the arena that the self-test needs: it keeps the outputs there."""
        return rounded(self.arena) + sum(rounded(tensor.kind.byte_size) for tensor in self.outputs)
