"""View of one ONNX node for its import function, which also adds operators to the graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

import numpy as np
from onnx import NodeProto, TensorProto, helper

from qglow.core.kept_imports import KeptImports, Made
from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.graph import Node, Value, constant
from qglow.graph.operator import Operator
from qglow.graph.rewriting import dequantized_constant
from qglow.importer.tensors import NARROW, Narrow, is_unsigned
from qglow.importer.weight_blocks import WeightBlocks
from qglow.numerics.quantize import dequantize_by


class Emit(Protocol):
    """Adds an operator, or folds it where all its inputs are constant; `quantization` is the result's."""

    def __call__(
        self,
        name: str,
        operator: Operator,
        inputs: Sequence[Value | None],
        output: str,
        quantization: Quantization | None = None,
    ) -> Value:
        """The result."""


class CannotImport(Exception):
    """This node cannot be imported; the message says what it uses and what is supported."""


class NeedsConstant(CannotImport):
    """This node cannot be imported because `value`, a parameter of it, is computed while the model runs."""

    def __init__(self, message: str, value: Value) -> None:
        super().__init__(message)
        self.value = value


class Broken(Exception):
    """This node contradicts itself or the standard; the message says how."""


@dataclass(frozen=True)
class Context:
    """Model around a node, as far as import functions need it.

    `emit(node_name, operator, inputs, output_name)` adds an operator, or folds it where all its
    inputs are constant; `read_tensor` gives the data of a tensor attribute; `is_used` tells
    whether anything reads a value; `part_names(node, output, part)` gives names for an operator
    that is only a part of an ONNX node. `unsigned` names the int8 and int16 values that are uint8 and
    uint16 in the model: their integers and zero points are 128 and 32768 less here. `readers` are
    the operators that read a value, by its name. `reals` are the types of computed values that are reals of
    another width in the model, by name: here they are float32.
    `integers` are constants that have been given parameters, by name and parameters; `twins` are constants
    of unsigned integers in the other form that they have (see operands), by name and form. `narrow` are the
    types of constants of fewer than 8 bits, and `blocks` the float constants whose integers have parameters
    in blocks, both by name. `kept` has what other imports of the file made of its arrays. `scope` opens a
    list of its own for the nodes that `emit` adds, which are those of a body.
    """

    opset: int
    emit: Emit
    read_tensor: Callable[[TensorProto], Array]
    is_used: Callable[[str], bool]
    part_names: Callable[[str, str, str], tuple[str, str]]
    readers: Mapping[str, Set[str]]
    scope: Callable[[], AbstractContextManager[list[Node]]]
    unsigned: set[str] = field(default_factory=set)
    reals: dict[str, ElementType] = field(default_factory=dict)
    integers: dict[tuple[str, Quantization], Value] = field(default_factory=dict)
    twins: dict[tuple[str, str], Value] = field(default_factory=dict)
    narrow: dict[str, Narrow] = field(default_factory=dict)
    blocks: dict[str, WeightBlocks] = field(default_factory=dict)
    kept: KeptImports | None = None

    def constant(self, name: str, data: Array) -> Value:
        """A constant. Integers are signed."""
        return constant(name, np.asarray(data, order="C"))

    def derived(self, how: Hashable, sources: Sequence[Array], make: Callable[[], Made]) -> Made:
        """The result of `make`, which depends on arrays and `how` alone; it is not to be written to."""
        return make() if self.kept is None else self.kept.derived(how, sources, make)


class ImportNode:
    """One ONNX node: typed attributes, inputs as graph values, and `emit`.

    An attribute that no import function has asked for and that is not at its default has been
    overlooked; `finish` refuses it instead of dropping it in silence.
    """

    def __init__(self, proto: NodeProto, name: str, inputs: Sequence[Value | None], context: Context) -> None:
        self.proto = proto
        self.name = name
        self.opset = context.opset
        self.inputs = tuple(inputs)
        self.results: dict[str, Value] = {}
        self.context = context
        self._attributes: Mapping[str, object] = {
            a.name: helper.get_attribute_value(a) for a in proto.attribute if not a.ref_attr_name
        }
        self._asked: set[str] = set()
        self._core = False
        self._label = next(filter(None, proto.output), "")
        self.require(bool(self._label), "it has no output")

    def refuse(self, reason: str) -> NoReturn:
        """Raise CannotImport."""
        raise CannotImport(reason)

    def require(self, condition: bool, reason: str) -> None:
        """Raise CannotImport(reason) unless `condition`."""
        if not condition:
            raise CannotImport(reason)

    # Attributes

    def has(self, name: str) -> bool:
        """Whether the file states the attribute."""
        self._asked.add(name)
        return name in self._attributes

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self._get(name, default)
        self.require(isinstance(value, int), f"attribute {name} is not an integer")
        return int(str(value))

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        value = self._get(name, default)
        self.require(isinstance(value, int | float), f"attribute {name} is not a number")
        return float(str(value))

    def integers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """An attribute that lists integers."""
        value = self._get(name, tuple(default))
        if not isinstance(value, list | tuple) or not all(isinstance(v, int) for v in value):
            raise CannotImport(f"attribute {name} is not a list of integers")
        return tuple(int(v) for v in value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """An attribute that lists floats."""
        value = self._get(name, ())
        if not isinstance(value, list | tuple) or not all(isinstance(v, int | float) for v in value):
            raise CannotImport(f"attribute {name} is not a list of numbers")
        return tuple(float(v) for v in value)

    def strings(self, name: str, default: Sequence[str]) -> tuple[str, ...]:
        """An attribute that lists strings."""
        value = self._get(name, tuple(default))
        if not isinstance(value, list | tuple):
            raise CannotImport(f"attribute {name} is not a list of strings")
        return tuple(v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in value)

    def string(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self._get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def tensor(self, name: str) -> Array:
        """A tensor attribute. Where it is unsigned in the model, so is the node's output."""
        value = self._get(name, None)
        if not isinstance(value, TensorProto):
            raise CannotImport(f"attribute {name} is not a tensor")
        if is_unsigned(value):
            self.context.unsigned.add(self.proto.output[0])
        if value.data_type in NARROW:
            self.context.narrow[self.proto.output[0]] = NARROW[value.data_type]
        return self.context.read_tensor(value)

    def ignore(self, *names: str) -> None:
        """Say that these attributes do not matter for inference."""
        self._asked.update(names)

    # Inputs

    def has_input(self, index: int) -> bool:
        """Whether the input is there: optional ones may be left out or have an empty name."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """A required input."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise CannotImport(f"input {index} is missing")
        return value

    def plain(self, index: int) -> Value:
        """A required input; a dequantized constant as the reals that it stands for."""
        value = self.value(index)
        if dequantized_constant(value) is None:
            return value
        return self.part_constant(f"input{index}", self.array(index, "it"))

    def optional(self, index: int) -> Value | None:
        """An optional input."""
        return self.inputs[index] if index < len(self.inputs) else None

    def kind(self, index: int = 0) -> TensorType:
        """Type of a required input."""
        return self.value(index).type

    def rank(self, index: int = 0) -> int:
        """Number of dimensions of a required input."""
        return len(self.kind(index).shape)

    def array(self, index: int, what: str) -> Array:
        """The data of an input that must be constant; `what` names it in the refusal."""
        value = self.value(index)
        integers = dequantized_constant(value)
        if integers is not None and integers.data is not None and integers.type.quantization is not None:
            return dequantize_by(integers.data, integers.type.quantization)
        if value.data is None:
            problem = "is computed while the model runs; it must be a constant"
            raise NeedsConstant(f"{what} ('{value.name}') {problem}", value)
        return value.data

    def optional_array(self, index: int, what: str) -> Array | None:
        """Read a constant input like `array`; None if the input is left out."""
        return self.array(index, what) if self.has_input(index) else None

    def scalar(self, index: int, what: str, default: float) -> float:
        """The only element of an optional constant input."""
        data = self.optional_array(index, what)
        if data is None:
            return default
        self.require(data.size == 1, f"{what} has {data.size} elements, one is supported")
        return float(data.reshape(()))

    def axis(self, value: int, rank: int, what: str = "axis") -> int:
        """An axis counted from the front; refused where it is out of range."""
        self.require(-rank <= value < rank, f"{what} {value} is out of range for {rank} dimensions")
        return value % rank if rank else 0

    # Outputs

    def inner(
        self,
        operator: str,
        inputs: Sequence[Value | None],
        name: str,
        output: str,
        dropped: Sequence[str] = (),
    ) -> ImportNode:
        """A view of another operator with this node's attributes, but for those `dropped`.

        Its import function checks the attributes.
        """
        proto = NodeProto(op_type=operator, name=name, output=[output])
        proto.attribute.extend(a for a in self.proto.attribute if a.name not in dropped)
        self._asked.update(self._attributes)
        return ImportNode(proto, name, inputs, self.context)

    def emit_by(
        self,
        function: ImportFunction,
        operator: str,
        inputs: Sequence[Value | None],
        part: str,
        dropped: Sequence[str] = (),
    ) -> Value:
        """Emit what an import function makes of another operator with this node's attributes.

        dropped: attributes that the other operator does not have.
        """
        names = self.context.part_names(self.name, self.proto.output[0], part)
        return self.inner(operator, inputs, *names, dropped).run(function)

    def run(self, function: ImportFunction) -> Value:
        """The first result of an import function, which has to know every attribute."""
        function(self)
        self.finish()
        return self.results[self.proto.output[0]]

    def emit(
        self,
        operator: Operator,
        *inputs: Value | None,
        part: str = "",
        output: int = 0,
        is_core: bool = False,
    ) -> Value:
        """Add an operator. Without `part` it gives the node's output of this number, else an intermediate.

        is_core: an intermediate does the node's work and has its name; what gives the output moves it on.
        """
        name = self.name
        if part:
            of_part, result = self.context.part_names(name, self._label, part)
            is_first = is_core and not self._core
            self._core = self._core or is_core
            return self.context.emit(name if is_first else of_part, operator, inputs, result)
        result = self.proto.output[output]
        self.require(bool(result), "it has no first output")
        if output or self._core:
            name, _ = self.context.part_names(name, result, f"output{output}")
        self.results[result] = self.context.emit(name, operator, inputs, result)
        return self.results[result]

    def constant(self, data: Array, output: int = 0) -> None:
        """Let an output of the node, by default the first, be a constant."""
        name = self.proto.output[output]
        self.results[name] = self.context.constant(name, data)

    def part_constant(self, part: str, data: Array) -> Value:
        """A constant operand that import makes itself."""
        _, name = self.context.part_names(self.name, self._label, part)
        return constant(name, np.asarray(data, order="C"))

    def is_used(self, output: int) -> bool:
        """Whether anything reads the node's output of this number."""
        names = self.proto.output
        return output < len(names) and bool(names[output]) and self.context.is_used(names[output])

    def require_single_output(self) -> None:
        """Refuse where something reads an output other than the first."""
        for name in self.proto.output[1:]:
            if name and self.context.is_used(name):
                raise CannotImport(f"its output '{name}' is used; only the first output is supported")

    def finish(self) -> None:
        """Refuse attributes that nobody asked for."""
        unknown = sorted(set(self._attributes) - self._asked)
        self.require(not unknown, f"attribute {', '.join(unknown)} is not supported")

    def _get(self, name: str, default: object) -> object:
        self._asked.add(name)
        return self._attributes.get(name, default)


ImportFunction = Callable[[ImportNode], None]


@dataclass(frozen=True)
class ImportRule:
    """Import function of an operator, and the newest definition (since_version) it was written for.

    reads_unsigned: whether the function knows that uint8 constants are stored as int8, and of int16 ones.
    reads_halves: whether it knows of reals of 16 and 64 bits; others get them as float32.
    """

    function: ImportFunction
    newest: int
    reads_unsigned: bool = False
    reads_halves: bool = False
