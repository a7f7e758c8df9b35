"""Building the graph node by node, going on after a refusal so that all of them are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from onnx import NodeProto, TensorProto, ValueInfoProto

from qglow.core.errors import ModelError, UnsupportedError
from qglow.core.model_place import ModelPlace, folder_of, stem_of
from qglow.core.types import Array, ElementType, Quantization, TensorType
from qglow.graph.folding import LARGEST_RESULT, evaluate_constant_node
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import Operator, OperatorTypeError
from qglow.graph.ops.quantize import Dequantize
from qglow.graph.ops.shape import Cast
from qglow.importer.control import ControlFlow, taking_back
from qglow.importer.deciding import DecidingInputs
from qglow.importer.inference import Inferred, infer
from qglow.importer.integers import moved_integers, passed_on
from qglow.importer.loading import ModelFile, first_line
from qglow.importer.naming import Names, operator_name, shown_name
from qglow.importer.node import Broken, CannotImport, Context, ImportNode, ImportRule, NeedsConstant
from qglow.importer.opaque import OpaqueGroup, OpaqueNodes, OpaqueTail
from qglow.importer.operands import as_read, as_real, numbers, operands
from qglow.importer.refusal import Refusal
from qglow.importer.rules import find_rule
from qglow.importer.structured import StructuredFlow
from qglow.importer.tails import TailSearch, add_tail
from qglow.importer.tensors import BORDER, ELEMENTS, NARROW, element_name, is_unsigned, to_array
from qglow.importer.unsupported import refused_node
from qglow.interchange.nodes import is_defined, outer_names
from qglow.numerics.logic import cast


class _Unknown(Exception):
    """An input comes from an unsupported node and nothing is known about it."""


class GraphImport:
    """One import under way. `problems` maps positions of nodes to what they use that is not supported.

    Nodes are numbered in the order in which they are imported, those of bodies among them.
    """

    def __init__(
        self,
        place: ModelPlace,
        model: ModelFile,
        inputs: Mapping[str, TensorType],
        unsigned: Sequence[str] = (),
        native: bool = False,
    ) -> None:
        """native: whether a node that qglow does not know is a problem, and not opaque."""
        graph = model.proto.graph
        self.problems: dict[int, Refusal] = {}
        self._order: list[NodeProto] = []
        self._views: set[int] = set()
        self._place = place
        self._model = model
        self._input_types = inputs
        self._inputs = [Value(name, kind) for name, kind in inputs.items()]
        self._values: dict[str, Value] = {value.name: value for value in self._inputs}
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name for tensor in graph.sparse_initializer}
        self._nodes: list[Node] = []
        self._known: Inferred | None = None
        used = {name for node in model.nodes for name in outer_names(node)} | {v.name for v in graph.output}
        readers = _readers(model)
        self._names = Names(model.nodes, used | {name for node in model.nodes for name in node.output})
        self._context = Context(
            model.opset, self._emit, self._read, used.__contains__, self._names.part, readers
        )
        self._context.unsigned.update(unsigned)
        self._used, self._readers = used, readers
        self._native = native
        self._opaque = OpaqueNodes(
            model,
            self._order,
            self._numbers,
            lambda value: as_real(value, self._context),
            self._original,
            self._inferred,
            used.__contains__,
        )
        self._control = ControlFlow(_Bodies(self))
        self._structured = StructuredFlow(_Bodies(self))
        self.deciding = DecidingInputs(inputs)
        self._asked_by_bodies: tuple[str, ...] = ()
        self.opaque: list[tuple[str, str, str]] = []
        """Node, operators and reason of every opaque node."""

    def build(self) -> Graph:
        """The graph; only meaningful while there are no problems. Raises ModelError."""
        for proto in self._model.nodes:
            self.add(proto)
        declared = list(self._model.proto.graph.output)
        tail = None if self.deciding.names else self._tail([v.name for v in declared])
        given = [v for v in declared if tail is None or v.name not in tail.results]
        outputs = [] if self.problems or self.deciding.names else [self._output(v) for v in given]
        for value in dict.fromkeys(outputs):
            if value is not None and value.is_constant:
                self._keep_apart(value)
            if value in self._inputs:
                raise UnsupportedError(
                    f"{self._place}: output '{value.name}' is an input of the model, unchanged; take it "
                    "out of the outputs, or give it another name with Identity"
                )
        graph = Graph(stem_of(self._place), self._inputs, [v for v in outputs if v is not None], self._nodes)
        if tail is not None:
            self._add_tail(graph, tail, [v.name for v in declared])
        return graph

    def _output(self, declared: ValueInfoProto) -> Value | None:
        """A value that the model gives: reals in the width that it states, a constant as it has it."""
        try:
            value = self.input(declared.name)
        except _Unknown as error:
            what = f"{self._place}: what computes output '{declared.name}' is not supported"
            raise UnsupportedError(f"{what}; end the model before it with qglow cut") from error
        if value is None or value.type.is_quantized:
            return value
        element = BORDER.get(declared.type.tensor_type.elem_type, value.type.element)
        data = numbers(value, self._context)
        if data is not None:
            data = data if element is value.type.element else cast(data, element)
            return value if data is value.data else constant(value.name, data)
        if element is value.type.element:
            return value
        name = value.name
        node, value.name = self._names.part(name, name, "float")
        return self._emit(node, Cast(to=element), [value], name)

    def _tail(self, outputs: Sequence[str]) -> OpaqueTail | None:
        """The nodes that compute outputs without a static type; None without such outputs.

        Where they cannot be executed, a problem is noted.
        """
        search = TailSearch(self._order, self._opaque, self._values.get, self._views)
        try:
            return search.tail_of(outputs)
        except _Unknown:
            return None  # what they read is reported already
        except CannotImport as refusal:
            name = next(name for name in outputs if self._opaque.is_pending(name))
            reason = f"only known when the model runs; {refusal}"
            position = len(self._order) + len(self.problems)
            self.problems[position] = Refusal(f"output '{name}'", "has a shape or a type that is", reason)
            return None

    def _add_tail(self, graph: Graph, tail: OpaqueTail, outputs: Sequence[str]) -> None:
        members = [self._order[index] for index in tail.members]
        names = [self._names.node(index, self._order[index]) for index in tail.members]
        removed = add_tail(graph, tail, names, outputs)
        self.opaque = [entry for entry in self.opaque if entry[0] not in removed]
        self.opaque += [
            (name, operator_name(proto), "it is behind a shape that data decides")
            for name, proto in zip(names, members, strict=True)
        ]

    def _keep_apart(self, output: Value) -> None:
        """Let nodes read a copy of a constant that is an output: what becomes of theirs is no output."""
        readers = [node for node in self._nodes if output in node.inputs]
        if readers and output.data is not None:
            copy = constant(self._names.value(f"{output.name}__read"), output.data)
            for node in readers:
                node.inputs = [copy if value is output else value for value in node.inputs]

    def add(self, proto: NodeProto) -> None:
        """Import a node; what it is in the way of goes into `problems`."""
        self._asked_by_bodies = ()
        if self._control.replace(proto):
            return
        asked = (*self.deciding.behind(self._control.open), *self._asked_by_bodies)
        if self._structured.build(proto):
            return
        index = len(self._order)
        self._order.append(proto)
        if self._opaque.reads_pending(proto):
            self._pass_on(index, proto, "it reads a value whose type is only known when it runs")
            return
        try:
            rule = find_rule(proto.domain, proto.op_type, self._model.opset)
            self._apply(index, proto, rule)
        except _Unknown:
            pass  # its own inputs are reported already
        except NeedsConstant as refusal:
            self._pass_on(index, proto, str(refusal), self.deciding.behind(refusal.value))
        except (CannotImport, UnsupportedError) as refusal:
            self._pass_on(index, proto, str(refusal), asked)
        except (ArithmeticError, LookupError, ValueError) as error:
            # A rank, a count or a size that no import function has expected, because no valid model has it.
            what = f"{self._place}: node '{shown_name(index, proto)}' ({proto.op_type})"
            raise ModelError(f"{what}: inputs or attributes do not fit it ({first_line(error)})") from error
        except Broken as error:
            what = f"{self._place}: node '{shown_name(index, proto)}' ({proto.op_type})"
            raise ModelError(f"{what}: {error}") from error
        except OperatorTypeError as error:
            if self._reads_integers(proto):
                self._pass_on(index, proto, str(error))
                return
            shapes = ", ".join(f"{n} {list(t.shape)}" for n, t in self._input_types.items())
            what = f"{self._place}: node '{shown_name(index, proto)}' ({proto.op_type}): {error}"
            raise ModelError(f"{what}, with inputs {shapes or 'none'}") from error

    def _pass_on(self, index: int, proto: NodeProto, reason: str, deciding: tuple[str, ...] = ()) -> None:
        """Make a node opaque that cannot be imported, for a reason; where that is no help, note both.

        deciding: inputs with whose values it could be imported. They decide where it is not opaque, or its
        results have no static type.
        """
        why = reason
        if not self._native and is_defined(proto, self._model.opset):
            try:
                group = self._opaque.group(index)
            except _Unknown:
                return  # its own inputs are reported already
            except CannotImport as refusal:
                why = f"{reason}; {refusal}"
            else:
                if group is None:
                    self.deciding.note(deciding)
                    return
                size = sum(kind.byte_size for kind in group.results.values())
                if group.operands or size <= LARGEST_RESULT:
                    self._add_opaque(index, proto, group, reason)
                    return
        self._note(index, proto, why)
        self.deciding.note(deciding, index)
        self._substitute(proto, deciding)

    def _add_opaque(self, index: int, proto: NodeProto, group: OpaqueGroup, reason: str) -> None:
        results = [Value(name, kind) for name, kind in group.results.items()]
        node = Node(self._names.node(index, proto), group.operator, group.operands, results)
        known = _evaluate(node) if group.operands else group.operator.evaluate(())
        if known is not None:
            node.inputs = ()
            results = [constant(v.name, data) for v, data in zip(results, known, strict=True)]
        else:
            self._nodes.append(node)
            self.opaque.append((node.name, group.operator.kinds, reason))
        self._values.update({value.name: value for value in results})

    def _original(self, name: str) -> TensorProto | None:
        """The tensor of a constant that the graph holds in another form, or cannot hold."""
        tensor: TensorProto | None = self._initializers.get(name)
        if tensor is None or tensor.data_type in ELEMENTS | BORDER:
            return None
        if tensor.data_location == TensorProto.EXTERNAL or name in self._model.large:
            raise CannotImport(f"'{name}' is {element_name(tensor.data_type)}, and large")
        return tensor

    def _reads_integers(self, proto: NodeProto) -> bool:
        """Whether the types that do not fit are a matter of support, not of a broken model."""
        value = self._values.get(proto.input[0]) if proto.input else None
        return value is not None and not value.type.is_float

    def _apply(self, index: int, proto: NodeProto, rule: ImportRule) -> None:
        """Import a node; one of float64 constants as one of float32 where its operator has no other form."""
        inputs, name = [self.input(name) for name in proto.input], self._names.node(index, proto)
        for doubles in (True, False):
            read = operands(inputs, rule, self._context, doubles)
            node = ImportNode(proto, name, read, self._context)
            try:
                rule.function(node)
                break
            except OperatorTypeError:
                if not any(v is not None and v.type.element is ElementType.DOUBLE for v in read):
                    raise
        node.finish()
        self._values.update(node.results)

    def _numbers(self, name: str) -> Value | None:
        """A value as a node reads it that takes no quantized integers."""
        return as_read(self.input(name), ImportRule(lambda node: None, 1), self._context)

    def _note(self, index: int, proto: NodeProto, reason: str) -> None:
        self.problems[index] = refused_node(index, proto, self._model.opset, reason)

    def _substitute(self, proto: NodeProto, deciding: tuple[str, ...]) -> None:
        """Let values behind an unsupported node pass as inputs of the types that onnx infers."""
        inferred = self._inferred().types
        for name in proto.output:
            if name in inferred:
                self._values[name] = Value(name, inferred[name])
                self.deciding.stand_in(name, deciding)

    def _inferred(self) -> Inferred:
        """Types that onnx infers for the values of the whole model."""
        if self._known is None:
            self._known = infer(self._model.proto, self._input_types)
        return self._known

    # Bodies

    def checkpoint(self) -> Callable[[], None]:
        """A function that takes back all that is imported from now on."""
        values, problems, count = dict(self._values), dict(self.problems), len(self._nodes)
        twins = dict(self._context.twins)
        known, opaque, deciding = self._opaque.checkpoint(), len(self.opaque), self.deciding.checkpoint()

        def restore() -> None:
            for node in self._nodes[count:]:
                node.inputs = ()
            del self._nodes[count:], self.opaque[opaque:]
            self._values, self.problems = values, problems
            self._keep_twins(twins)
            self._asked_by_bodies = self.deciding.take_back(deciding)
            known()

        return restore

    @contextmanager
    def scope(self) -> Iterator[list[Node]]:
        """A context whose nodes are in a list of their own, and read nothing any more where it raises."""
        outer, self._nodes = self._nodes, []
        inner, twins = self._nodes, dict(self._context.twins)
        try:
            yield inner
        except Exception:
            for node in inner:
                node.inputs = ()
            raise
        finally:
            self._nodes = outer
            self._keep_twins(twins)

    def _keep_twins(self, twins: Mapping[tuple[str, str], Value]) -> None:
        """Forget other forms of values that were made since these were all of them."""
        self._context.twins.clear()
        self._context.twins.update(twins)

    def append(self, node: Node) -> None:
        """Add a node of the graph."""
        self._nodes.append(node)

    def is_plain(self, value: Value) -> bool:
        """Whether a value is neither quantized, nor of another width or sign in the model."""
        context = self._context
        return (
            not value.type.is_quantized
            and value.name not in context.unsigned
            and value.name not in context.reals
        )

    def is_pending(self, name: str) -> bool:
        """Whether the value of a name has a type that is only known when the model runs."""
        return self._opaque.is_pending(name)

    def read_by_bodies(self, name: str, operators: Sequence[str]) -> None:
        """Note that nodes of a body read a value."""
        self._used.add(name)
        self._readers.setdefault(name, set()).update(operators)

    # Values

    def input(self, name: str) -> Value | None:
        """The value of a name; None for no name. Raises _Unknown, and CannotImport for a sparse constant."""
        if not name:
            return None
        if name not in self._values and name in self._initializers:
            tensor = self._initializers[name]
            data = self._read(tensor, self._model.large.get(name))
            self._values[name] = self._context.constant(name, data)
            if is_unsigned(tensor):
                self._context.unsigned.add(name)
            if tensor.data_type in NARROW:
                self._context.narrow[name] = NARROW[tensor.data_type]
        if name in self._sparse:
            raise CannotImport(f"'{name}' is a sparse initializer; store it dense")
        if name not in self._values:
            raise _Unknown(name)
        return self._values[name]

    def _read(self, tensor: TensorProto, data: memoryview | None = None) -> Array:
        try:
            return to_array(tensor, folder_of(self._place), quantized=True, halves=True, data=data)
        except ModelError as error:
            raise ModelError(f"{self._place}: {error}") from error

    def _emit(
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
            if any(v is not None and v.name in self._context.unsigned for v in inputs):
                self._context.unsigned.add(output)
        integers = moved_integers(operator, inputs, f"{output}__integers")
        if integers is not None:
            operator, inputs = Dequantize(), [integers]
        further = [Value(f"{output}__{number}", other) for number, other in enumerate(others, start=1)]
        node = Node(name, operator, inputs, [Value(output, kind), *further])
        known = None if further else _evaluate(node)
        if known is not None:
            node.inputs = ()
            return constant(output, known[0])
        self._nodes.append(node)
        return node.output

    def set(self, name: str, value: Value) -> None:
        """Give a name its value."""
        self._values[name] = value

    def keep(self, name: str, tensor: TensorProto) -> None:
        """Add an initializer."""
        self._initializers[name] = tensor

    def fresh(self, wanted: str) -> str:
        """A name that no value has."""
        return self._names.value(wanted)

    def view(self, proto: NodeProto) -> ImportNode:
        """A node without inputs for its import function."""
        index = len(self._order)
        self._views.add(index)
        self._order.append(proto)
        return ImportNode(proto, self._names.node(index, proto), [], self._context)


class _Bodies:
    """Satisfies `Importing` with an import under way."""

    def __init__(self, work: GraphImport) -> None:
        self._work = work

    def value(self, name: str) -> Value | None:
        """The value of a name, None where nothing is known about it."""
        try:
            return self._work.input(name)
        except _Unknown:
            return None

    def is_known(self, name: str) -> bool:
        """Whether something computes the value of a name, of whatever type."""
        return self._work.is_pending(name) or self.value(name) is not None

    def bind(self, name: str, data: Array) -> None:
        """Make a name stand for a constant."""
        self._work.set(name, constant(name, data))

    def fresh(self, wanted: str) -> str:
        """A name that no value has; nodes may read it."""
        return self._work.fresh(wanted)

    def keep(self, name: str, tensor: TensorProto) -> None:
        """Add a constant of a body under this name."""
        self._work.keep(name, tensor)

    def need(self, name: str) -> None:
        """Note that something reads a value of a body."""
        self._work.read_by_bodies(name, [])

    def add(self, node: NodeProto) -> None:
        """Import a node of a body."""
        for name in outer_names(node):
            self._work.read_by_bodies(name, [node.op_type])
        self._work.add(node)

    def place(self, value: Value) -> None:
        """Give the name of a value to it."""
        self._work.set(value.name, value)

    def append(self, node: Node) -> None:
        """Add a node of the graph."""
        self._work.append(node)

    def is_plain(self, value: Value) -> bool:
        """Whether a value is neither quantized, nor of another width or sign in the model."""
        return self._work.is_plain(value)

    def scope(self) -> AbstractContextManager[list[Node]]:
        """A context whose nodes are in a list of their own."""
        return self._work.scope()

    def view(self, proto: NodeProto) -> ImportNode:
        """A view of a node without inputs."""
        return self._work.view(proto)

    def finish(self, node: ImportNode) -> None:
        """Take the results of a node."""
        for name, value in node.results.items():
            self._work.set(name, value)

    def attempt(self) -> AbstractContextManager[None]:
        """A context that takes back all that was imported in it where CannotImport or a problem arises."""
        return taking_back(self._work.checkpoint(), lambda: len(self._work.problems))


def _readers(model: ModelFile) -> dict[str, set[str]]:
    """The operators that read each value of the model."""
    readers: dict[str, set[str]] = {}
    for node in model.nodes:
        for name in node.input:
            readers.setdefault(name, set()).add(node.op_type)
    return readers


def _evaluate(node: Node) -> tuple[Array, ...] | None:
    try:
        return evaluate_constant_node(node)
    except (ArithmeticError, IndexError, MemoryError, ValueError) as error:
        raise OperatorTypeError(f"its constants do not fit: {first_line(error)}") from error
