"""Building the graph node by node, going on after a refusal so that all of them are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnx import NodeProto, TensorProto, ValueInfoProto

from qglow.core.errors import ModelError, UnsupportedError
from qglow.core.model_place import ModelPlace, stem_of
from qglow.core.types import ElementType, TensorType
from qglow.graph.folding import LARGEST_RESULT
from qglow.graph.graph import Graph, Node, Value, constant
from qglow.graph.operator import OperatorTypeError
from qglow.graph.ops.shape import Cast
from qglow.importer.bodies import Bodies
from qglow.importer.control import FEW_NODES, MOST_NODES, ControlFlow, has_products, is_control
from qglow.importer.deciding import DecidingInputs
from qglow.importer.free_sizes import FreeSizes
from qglow.importer.inference import Inferred, infer
from qglow.importer.loading import ModelFile, first_line
from qglow.importer.naming import operator_name, shown_name
from qglow.importer.node import Broken, CannotImport, ImportNode, ImportRule, NeedsConstant
from qglow.importer.opaque import OpaqueGroup, OpaqueNodes, OpaqueTail
from qglow.importer.operands import as_read, as_real, numbers, operands
from qglow.importer.refusal import Refusal
from qglow.importer.rules import find_rule
from qglow.importer.structured import StructuredFlow
from qglow.importer.tails import TailSearch, add_tail
from qglow.importer.tensors import BORDER, ELEMENTS, element_name
from qglow.importer.unsupported import refused_node
from qglow.importer.value_table import UnknownValue, ValueTable, evaluated
from qglow.interchange.nodes import is_defined, outer_names
from qglow.numerics.logic import cast


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
        decided_by_data: bool = False,
    ) -> None:
        """native: whether a node that qglow does not know is a problem, and not opaque.

        decided_by_data: whether no input is asked for its values, whatever they decide.
        """
        self.problems: dict[int, Refusal] = {}
        self._order: list[NodeProto] = []
        self._views: set[int] = set()
        self._place = place
        self._model = model
        self._input_types = inputs
        self._inputs = [Value(name, kind) for name, kind in inputs.items()]
        self._table = ValueTable(place, model, self._inputs, unsigned)
        self._known: Inferred | None = None
        self._native = native
        self._opaque = OpaqueNodes(
            model,
            self._order,
            self._numbers,
            lambda value: as_real(value, self._table.context),
            self._original,
            self._inferred,
            self._table.used.__contains__,
        )
        bodies = Bodies(self, self._table)
        self._control = ControlFlow(bodies)
        self._structured = StructuredFlow(bodies)
        self._sizes = FreeSizes(model, bodies.value)
        self.deciding = DecidingInputs(inputs, none=decided_by_data)
        self._asked_by_bodies: tuple[str, ...] = ()
        self.opaque: list[tuple[str, str, tuple[str, ...]]] = []
        """Every opaque node with its operators, and the inputs with whose values it could be imported."""

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
        graph = Graph(
            stem_of(self._place), self._inputs, [v for v in outputs if v is not None], self._table.nodes
        )
        if tail is not None:
            self._add_tail(graph, tail, [v.name for v in declared])
        return graph

    def _output(self, declared: ValueInfoProto) -> Value | None:
        """A value that the model gives: reals in the width that it states, a constant as it has it."""
        try:
            value = self._table.input(declared.name)
        except UnknownValue as error:
            what = f"{self._place}: what computes output '{declared.name}' is not supported"
            raise UnsupportedError(f"{what}; end the model before it with qglow cut") from error
        if value is None or value.type.is_quantized:
            return value
        element = BORDER.get(declared.type.tensor_type.elem_type, value.type.element)
        data = numbers(value, self._table.context)
        if data is not None:
            data = data if element is value.type.element else cast(data, element)
            return value if data is value.data else constant(value.name, data)
        if element is value.type.element:
            return value
        name = value.name
        # A recipe calls nodes by their names and those of their results: these two have none in common.
        node, _ = self._table.names.part(name, name, "cast")
        _, value.name = self._table.names.part(name, name, "float")
        return self._table.emit(node, Cast(to=element), [value], name)

    def _tail(self, outputs: Sequence[str]) -> OpaqueTail | None:
        """The nodes that compute outputs without a static type; None without such outputs.

        Where they cannot be executed, a problem is noted.
        """
        search = TailSearch(self._order, self._opaque, self._table.values.get, self._views)
        try:
            return search.tail_of(outputs)
        except UnknownValue:
            return None  # what they read is reported already
        except CannotImport as refusal:
            name = next(name for name in outputs if self._opaque.is_pending(name))
            kind = "has a shape or a type that only a run tells"
            position = len(self._order) + len(self.problems)
            self.problems[position] = Refusal(f"output '{name}'", kind, str(refusal))
            return None

    def _add_tail(self, graph: Graph, tail: OpaqueTail, outputs: Sequence[str]) -> None:
        members = [self._order[index] for index in tail.members]
        names = [self._table.names.node(index, self._order[index]) for index in tail.members]
        removed = add_tail(graph, tail, names, outputs)
        self.opaque = [entry for entry in self.opaque if entry[0] not in removed]
        self.opaque += [(name, operator_name(proto), ()) for name, proto in zip(names, members, strict=True)]

    def _keep_apart(self, output: Value) -> None:
        """Let nodes read a copy of a constant that is an output: what becomes of theirs is no output."""
        readers = [node for node in self._table.nodes if output in node.inputs]
        if readers and output.data is not None:
            copy = constant(self._table.names.value(f"{output.name}__read"), output.data)
            for node in readers:
                node.inputs = [copy if value is output else value for value in node.inputs]

    def add(self, proto: NodeProto) -> None:
        """Import a node; what it is in the way of goes into `problems`."""
        self._asked_by_bodies = ()
        few = self._few_nodes(proto)
        if self._control.replace(proto, few):
            return
        asked = (*self.deciding.behind(self._control.open), *self._asked_by_bodies)
        if self._structured.build(proto) or (few < MOST_NODES and self._control.replace(proto)):
            return
        index = len(self._order)
        self._order.append(proto)
        if self._opaque.reads_pending(proto):
            self._pass_on(index, proto, "it reads a value whose type is only known when it runs")
            return
        try:
            rule = find_rule(proto.domain, proto.op_type, self._model.opset)
            self._apply(index, proto, rule)
        except UnknownValue:
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

    def _few_nodes(self, proto: NodeProto) -> int:
        """Nodes that the rounds of a loop may become even where it can stay a loop.

        What is computed from constants alone becomes constants that way.
        """
        if not is_control(proto) or all(map(self._is_constant, outer_names(proto))):
            return MOST_NODES
        if self._sizes.decide_rounds(proto):
            return 0
        return FEW_NODES if has_products(proto) else MOST_NODES

    def _is_constant(self, name: str) -> bool:
        try:
            value = self._table.input(name)
        except UnknownValue:
            return False
        return value is None or value.is_constant

    def _pass_on(self, index: int, proto: NodeProto, reason: str, deciding: tuple[str, ...] = ()) -> None:
        """Make a node opaque that cannot be imported, for a reason; where that is no help, note both.

        deciding: inputs with whose values it could be imported. They decide where it is not opaque, or its
        results have no static type.
        """
        why = reason
        if not self._native and is_defined(proto, self._model.opset):
            try:
                group = self._opaque.group(index)
            except UnknownValue:
                return  # its own inputs are reported already
            except CannotImport as refusal:
                why = f"{reason}; {refusal}"
            else:
                if group is None:
                    self.deciding.note(deciding)
                    return
                size = sum(kind.byte_size for kind in group.results.values())
                if group.operands or size <= LARGEST_RESULT:
                    self._add_opaque(index, proto, group, deciding)
                    return
        self._note(index, proto, why)
        self.deciding.note(deciding, index)
        self._substitute(proto, deciding)

    def _add_opaque(
        self, index: int, proto: NodeProto, group: OpaqueGroup, deciding: tuple[str, ...]
    ) -> None:
        results = [Value(name, kind) for name, kind in group.results.items()]
        node = Node(self._table.names.node(index, proto), group.operator, group.operands, results)
        known = evaluated(node) if group.operands else group.operator.evaluate(())
        if known is not None:
            node.inputs = ()
            results = [constant(v.name, data) for v, data in zip(results, known, strict=True)]
        else:
            self._table.nodes.append(node)
            self.opaque.append((node.name, group.operator.kinds, deciding))
        self._table.values.update({value.name: value for value in results})

    def _original(self, name: str) -> TensorProto | None:
        """The tensor of a constant that the graph holds in another form, or cannot hold."""
        tensor: TensorProto | None = self._table.initializers.get(name)
        if tensor is None or tensor.data_type in ELEMENTS | BORDER:
            return None
        if tensor.data_location == TensorProto.EXTERNAL or name in self._model.large:
            raise CannotImport(f"'{name}' is {element_name(tensor.data_type)}, and large")
        return tensor

    def _reads_integers(self, proto: NodeProto) -> bool:
        """Whether the types that do not fit are a matter of support, not of a broken model."""
        value = self._table.values.get(proto.input[0]) if proto.input else None
        return value is not None and not value.type.is_float

    def _apply(self, index: int, proto: NodeProto, rule: ImportRule) -> None:
        """Import a node; one of float64 constants as one of float32 where its operator has no other form."""
        inputs, name = [self._table.input(name) for name in proto.input], self._table.names.node(index, proto)
        for doubles in (True, False):
            read = operands(inputs, rule, self._table.context, doubles)
            node = ImportNode(proto, name, read, self._table.context)
            try:
                rule.function(node)
                break
            except OperatorTypeError:
                if not any(v is not None and v.type.element is ElementType.DOUBLE for v in read):
                    raise
        node.finish()
        self._table.values.update(node.results)

    def _numbers(self, name: str) -> Value | None:
        """A value as a node reads it that takes no quantized integers."""
        return as_read(self._table.input(name), ImportRule(lambda node: None, 1), self._table.context)

    def _note(self, index: int, proto: NodeProto, reason: str) -> None:
        self.problems[index] = refused_node(index, proto, self._model.opset, reason)

    def _substitute(self, proto: NodeProto, deciding: tuple[str, ...]) -> None:
        """Let values behind an unsupported node pass as inputs of the types that onnx infers."""
        inferred = self._inferred().types
        for name in proto.output:
            if name in inferred:
                self._table.values[name] = Value(name, inferred[name])
                self.deciding.stand_in(name, deciding)

    def _inferred(self) -> Inferred:
        """Types that onnx infers for the values of the whole model."""
        if self._known is None:
            self._known = infer(self._model.proto, self._input_types)
        return self._known

    # Bodies

    def checkpoint(self) -> Callable[[], None]:
        """A function that takes back all that is imported from now on."""
        problems, table = dict(self.problems), self._table.checkpoint()
        known, opaque, deciding = self._opaque.checkpoint(), len(self.opaque), self.deciding.checkpoint()

        def restore() -> None:
            table()
            del self.opaque[opaque:]
            self.problems = problems
            self._asked_by_bodies = self.deciding.take_back(deciding)
            known()

        return restore

    def is_pending(self, name: str) -> bool:
        """Whether the value of a name has a type that is only known when the model runs."""
        return self._opaque.is_pending(name)

    def view(self, proto: NodeProto) -> ImportNode:
        """A node without inputs for its import function."""
        index = len(self._order)
        self._views.add(index)
        self._order.append(proto)
        return ImportNode(proto, self._table.names.node(index, proto), [], self._table.context)
