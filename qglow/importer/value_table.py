"""The values of an import under way by name, and the nodes that compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from onnx import TensorProto

from qglow.core.errors import ModelError
from qglow.core.model_place import ModelPlace, folder_of
from qglow.core.types import Array, Quantization
from qglow.graph.folding import evaluate_constant_node
from qglow.graph.graph import Node, Value, constant
from qglow.graph.operator import Operator, OperatorTypeError
from qglow.graph.ops.quantize import Dequantize
from qglow.importer.integers import moved_integers, passed_on
from qglow.importer.loading import ModelFile, first_line
from qglow.importer.naming import Names
from qglow.importer.node import Context
from qglow.importer.tensors import NARROW, is_unsigned, to_array
from qglow.interchange.nodes import outer_names


class UnknownValue(Exception):
    """An input comes from an unsupported node and nothing is known about it."""


class ValueTable:
    """Values by name, those of initializers once they are asked for, and nodes in their order.

    used: names that something reads. names: gives new ones. context: what import functions share.
    """

    def __init__(
        self, place: ModelPlace, model: ModelFile, inputs: Sequence[Value], unsigned: Sequence[str]
    ) -> None:
        """unsigned: inputs that the model has as unsigned integers."""
        graph = model.proto.graph
        self.values: dict[str, Value] = {value.name: value for value in inputs}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._stored = {n: t for n, t in self.initializers.items() if n not in model.given}
        self.nodes: list[Node] = []
        self.used = {name for node in model.nodes for name in outer_names(node)}
        self.used |= {value.name for value in graph.output}
        self.names = Names(model.nodes, self.used | {n for node in model.nodes for n in node.output})
        self._place, self._model = place, model
        self._readers = _readers(model)
        self.context = Context(
            model.opset,
            self.emit,
            self._read,
            self.used.__contains__,
            self.names.part,
            self._readers,
            self.scope,
            kept=model.kept,
        )
        self.context.unsigned.update(unsigned)

    def input(self, name: str) -> Value | None:
        """The value of a name; None for no name. Raises UnknownValue."""
        if not name:
            return None
        if name not in self.values and name in self.initializers:
            tensor = self.initializers[name]
            self.values[name] = self.context.constant(name, self._initializer(name, tensor))
            if is_unsigned(tensor):
                self.context.unsigned.add(name)
            if tensor.data_type in NARROW:
                self.context.narrow[name] = NARROW[tensor.data_type]
        if name not in self.values:
            raise UnknownValue(name)
        return self.values[name]

    def _initializer(self, name: str, tensor: TensorProto) -> Array:
        """The data of an initializer, which other imports of the file may have."""
        kept, own = self._model.kept, tensor is self._stored.get(name)
        if kept is None or not own:
            return self._read(tensor, self._model.large.get(name))
        return kept.initializer(name, lambda: self._read(tensor, self._model.large.get(name)))

    def _read(self, tensor: TensorProto, data: memoryview | None = None) -> Array:
        try:
            return to_array(tensor, folder_of(self._place), quantized=True, halves=True, data=data)
        except ModelError as error:
            raise ModelError(f"{self._place}: {error}") from error

    def emit(
        self,
        name: str,
        operator: Operator,
        inputs: Sequence[Value | None],
        output: str,
        quantization: Quantization | None = None,
    ) -> Value:
        """Add a node, or fold it where all inputs are constant, and return its first result.

        A node with several results is not folded. Raises OperatorTypeError.
        """
        types = [None if v is None else v.type for v in inputs]
        kind, *others = operator.infer(types)
        quantization = quantization or passed_on(operator, inputs)
        if quantization is not None:
            kind = kind.quantized(quantization)
            if any(v is not None and v.name in self.context.unsigned for v in inputs):
                self.context.unsigned.add(output)
        integers = moved_integers(operator, inputs, f"{output}__integers")
        if integers is not None:
            operator, inputs = Dequantize(), [integers]
        further = [Value(f"{output}__{number}", other) for number, other in enumerate(others, start=1)]
        node = Node(name, operator, inputs, [Value(output, kind), *further])
        known = None if further else self._folded(node)
        if known is not None:
            node.inputs = ()
            return constant(output, known)
        self.nodes.append(node)
        return node.output

    def _folded(self, node: Node) -> Array | None:
        """The only result of a node whose operands are constants, None for others."""
        arrays = [value.data for value in node.inputs if value is not None]
        known = [array for array in arrays if array is not None]

        def make() -> Array | None:
            results = evaluated(node)
            return None if results is None else results[0]

        if len(known) < len(arrays) or node.operator.region_names:
            return make()
        # The text tells 0.0 and -0.0 apart, which are equal.
        how = (repr(node.operator), *node.input_types(), *node.output_types())
        return self.context.derived(how, known, make)

    def set(self, name: str, value: Value) -> None:
        """Give a name its value."""
        self.values[name] = value

    def keep(self, name: str, tensor: TensorProto) -> None:
        """Add an initializer."""
        self.initializers[name] = tensor

    def fresh(self, wanted: str) -> str:
        """A name that no value has."""
        return self.names.value(wanted)

    def read_by_bodies(self, name: str, operators: Sequence[str]) -> None:
        """Note that nodes of a body read a value."""
        self.used.add(name)
        self._readers.setdefault(name, set()).update(operators)

    def checkpoint(self) -> Callable[[], None]:
        """A function that takes back all values and nodes that are added from now on."""
        values, count, twins = dict(self.values), len(self.nodes), dict(self.context.twins)

        def restore() -> None:
            for node in self.nodes[count:]:
                node.inputs = ()
            del self.nodes[count:]
            self.values = values
            self._keep_twins(twins)

        return restore

    @contextmanager
    def scope(self) -> Iterator[list[Node]]:
        """A context whose nodes are in a list of their own, and read nothing any more where it raises."""
        outer, self.nodes = self.nodes, []
        inner, twins = self.nodes, dict(self.context.twins)
        try:
            yield inner
        except Exception:
            for node in inner:
                node.inputs = ()
            raise
        finally:
            self.nodes = outer
            self._keep_twins(twins)

    def _keep_twins(self, twins: Mapping[tuple[str, str], Value]) -> None:
        """Forget other forms of values that were made since these were all of them."""
        self.context.twins.clear()
        self.context.twins.update(twins)

    def append(self, node: Node) -> None:
        """Add a node of the graph."""
        self.nodes.append(node)

    def is_plain(self, value: Value) -> bool:
        """Whether a value is neither quantized, nor of another width or sign in the model."""
        context = self.context
        return (
            not value.type.is_quantized
            and value.name not in context.unsigned
            and value.name not in context.reals
        )


def _readers(model: ModelFile) -> dict[str, set[str]]:
    """The operators that read each value of the model."""
    readers: dict[str, set[str]] = {}
    for node in model.nodes:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    return readers


def evaluated(node: Node) -> tuple[Array, ...] | None:
    """Results of a node whose operands are constants, None for others. Raises OperatorTypeError."""
    try:
        return evaluate_constant_node(node)
    except (ArithmeticError, IndexError, MemoryError, ValueError) as error:
        raise OperatorTypeError(f"its constants do not fit: {first_line(error)}") from error
