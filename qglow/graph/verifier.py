"""The rules that every graph keeps between passes."""

from __future__ import annotations

from collections.abc import Sequence

from qglow.core.errors import VerificationError
from qglow.core.types import TensorType
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import (
    Accumulate,
    KeepFloat,
    OperatorTypeError,
    Products,
    ReadsIntegers,
    Recur,
    SameAs,
    Table,
    Unify,
)
from qglow.graph.traits import Conversion


def verify_graph(graph: Graph, where: str) -> None:
    """Check a graph. Raises VerificationError that names `where`, the node and the broken rule.

    Every operand is an input, a constant or computed before; use lists agree with operands; names
    of values, and of nodes, are unique; types are those that operators infer, up to quantization;
    quantized forms are those that the operators' policies allow; constants' data fits their types.
    Regions keep the same rules, and read nothing from outside of them.
    """
    _Verifier(graph, where).run()


class _Verifier:
    def __init__(self, graph: Graph, where: str) -> None:
        self._graph = graph
        self._values = tuple(graph.values())
        self._where = where

    def run(self) -> None:
        self._check_names()
        self._check_order()
        self._check_uses()
        for value in self._values:
            self._check_data(value)
        for node in self._graph.nodes:
            self._check_arity(node)
            self._check_types(node)
            broken = quantized_form_problem(node) or _half_problem(node)
            if broken:
                self._fail(repr(node), broken)
        self._check_tail()
        for node in self._graph.nodes:
            for name, region in zip(node.operator.region_names, node.operator.regions, strict=True):
                verify_graph(region, f"{self._where}, {name} of '{node.name}'")

    def _fail(self, place: str, rule: str) -> None:
        raise VerificationError(f"{self._where}: graph {self._graph.name}, {place}: {rule}")

    def _check_names(self) -> None:
        self._check_unique("value", [v.name for v in self._values])
        self._check_unique("node", [n.name for n in self._graph.nodes])

    def _check_unique(self, what: str, names: Sequence[str]) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self._fail(f"{what} '{name}'", f"another {what} has the same name")
            seen.add(name)

    def _check_order(self) -> None:
        known: set[Value] = set(self._graph.inputs)
        for value in self._graph.inputs:
            if value.is_constant or value.producer is not None:
                self._fail(f"input '{value.name}'", "an input is neither constant nor computed")
        for node in self._graph.nodes:
            for operand in node.inputs:
                if operand is not None and not operand.is_constant and operand not in known:
                    self._fail(repr(node), f"operand '{operand.name}' is not computed before it")
            for index, output in enumerate(node.outputs):
                if output.producer is not node or output.index != index:
                    self._fail(repr(node), f"output '{output.name}' names another producer")
                known.add(output)
        for value in self._graph.outputs:
            if not value.is_constant and value not in known:
                self._fail(f"output '{value.name}'", "nothing computes it")

    def _check_uses(self) -> None:
        actual: dict[Value, list[tuple[Node, int]]] = {value: [] for value in self._values}
        for node in self._graph.nodes:
            for index, operand in enumerate(node.inputs):
                if operand is not None:
                    actual[operand].append((node, index))
        for value, uses in actual.items():
            if len(uses) != len(value.uses) or set(uses) != set(value.uses):
                self._fail(f"value '{value.name}'", "its use list differs from the nodes that read it")

    def _check_data(self, value: Value) -> None:
        kind = value.type
        if kind.quantization is not None:
            self._check_parameters(value)
        if value.data is None:
            return
        if value.data.dtype != kind.element.dtype or value.data.shape != kind.shape:
            found = f"{value.data.dtype}{list(value.data.shape)}"
            self._fail(f"constant '{value.name}'", f"data {found} does not fit type {kind}")
        if value.producer is not None:
            self._fail(f"constant '{value.name}'", "a node computes it too")

    def _check_parameters(self, value: Value) -> None:
        kind = value.type
        parameters = kind.quantization
        assert parameters is not None
        if kind.element is not parameters.element:
            what = f"{kind.element.value} has parameters of {parameters.element.value}"
            self._fail(f"value '{value.name}'", what)
        low, high = min(parameters.zero_points, default=0), max(parameters.zero_points, default=0)
        if low < parameters.smallest or high > parameters.largest:
            self._fail(f"value '{value.name}'", f"a zero point is no {kind.element.value}")
        if parameters.is_wide and any(parameters.zero_points):
            self._fail(f"value '{value.name}'", "int16 has zero point 0")
        axis = parameters.axis
        if axis is None:
            return
        if not value.is_constant:
            self._fail(f"value '{value.name}'", "only constants have parameters per channel")
        if not 0 <= axis < len(kind.shape) or kind.shape[axis] != len(parameters.scales):
            self._fail(
                f"value '{value.name}'", f"{len(parameters.scales)} scales do not fit axis {axis} of {kind}"
            )

    def _check_tail(self) -> None:
        """Check that a tail reads inputs and outputs of the types that it states, and gives the others."""
        tail = self._graph.tail
        if tail is None:
            return
        types = {value.name: value.type for value in (*self._graph.inputs, *self._graph.outputs)}
        for name, wanted in zip(tail.operands, tail.argument_types, strict=True):
            if name not in types:
                self._fail("tail", f"operand '{name}' is neither an input nor an output of the graph")
            if types[name] != wanted:
                self._fail("tail", f"operand '{name}' is {types[name]}, the tail takes {wanted}")
        given = {value.name for value in self._graph.outputs}
        for name in tail.outputs:
            if (name in tail.results) == (name in given):
                self._fail("tail", f"output '{name}' has to be given by the graph, or else by the tail")

    def _check_arity(self, node: Node) -> None:
        declared, inputs = node.operator.operands, node.inputs
        variadic = bool(declared) and declared[-1].rstrip("?").endswith("*")
        if len(inputs) > len(declared) and not variadic:
            self._fail(repr(node), f"{len(inputs)} operands, the operator takes {len(declared)}")
        for index, name in enumerate(declared):
            present = index < len(inputs) and inputs[index] is not None
            if not present and not name.endswith("?"):
                self._fail(repr(node), f"operand {name.rstrip('*')} is missing")
        if variadic and any(value is None for value in inputs[len(declared) - 1 :]):
            self._fail(repr(node), "an operand of a list is absent")

    def _check_types(self, node: Node) -> None:
        try:
            inferred = node.operator.infer(node.input_types())
        except OperatorTypeError as error:
            self._fail(repr(node), str(error))
            return
        if len(inferred) != len(node.outputs):
            self._fail(repr(node), f"{len(node.outputs)} outputs, the operator gives {len(inferred)}")
        for kind, output in zip(inferred, node.outputs, strict=True):
            if not _agrees(output.type, kind):
                self._fail(repr(node), f"output '{output.name}' is {output.type}, inferred is {kind}")


def _agrees(actual: TensorType, inferred: TensorType) -> bool:
    """Whether a type is the inferred one, or its int8 form."""
    if actual.quantization is None:
        return actual == inferred
    return inferred.is_float and actual.shape == inferred.shape


def quantized_form_problem(node: Node) -> str | None:
    """Reason why the operator's policy does not allow the node's types; None if it does.

    The forms: all float; Accumulate integers as x, int8 as w, an int32 bias, integer or float result;
    Products int8 operands, int8 or float result; Recur int8 weights, and states of equal parameters; SameAs
    and Unify the same parameters throughout;
    Rescaled and a Unify that rescales integers in and out, each with its own; Table int8 in and out;
    ReadsIntegers any. Integers are int8 or int16.
    """
    operator, policy = node.operator, node.operator.policy
    if operator.conversion is not None:
        return _conversion_problem(node, operator.conversion)
    operands = [value for value in node.inputs if value is not None]
    if not any(value.type.is_quantized for value in [*operands, *node.outputs]):
        return None
    if isinstance(policy, Products | Recur | Table) and _any_wide([*operands, *node.outputs]):
        return "it has no int16 form"
    if isinstance(policy, KeepFloat):
        if policy.scaled_by and node.operand(policy.scaled_by) is not None:
            return None  # its own types say what is quantized
        return f"it stays float ({policy.reason}), but has a quantized operand or result"
    if isinstance(policy, ReadsIntegers):
        return None
    if isinstance(policy, Accumulate):
        return _accumulate_problem(node, policy)
    if isinstance(policy, Recur):
        return _recurrent_problem(node, policy)
    if isinstance(policy, SameAs):
        return _same_problem([node.inputs[policy.operand], *node.outputs])
    if isinstance(policy, Unify) and not policy.rescales:
        return _same_problem([*node.inputs, *node.outputs])
    return _elementwise_problem(node, may_be_float=isinstance(policy, Products))


def _half_problem(node: Node) -> str | None:
    """Reason against 16-bit floats of a node, other than constant weights and their scales; or None."""
    policy = node.operator.policy
    if node.operator.takes_halves:
        return None
    names = (policy.w,) if isinstance(policy, Accumulate) else node.operator.half_operands
    allowed = [node.operand(name) for name in names]
    for value in (*node.inputs, *node.outputs):
        if value is not None and value.type.is_half and not (value in allowed and value.is_constant):
            return f"'{value.name}' is {value.type}, and only constant weights of float operators are so"
    return None


def _any_wide(values: Sequence[Value]) -> bool:
    return any(v.type.quantization is not None and v.type.quantization.is_wide for v in values)


def _conversion_problem(node: Node, wanted: Conversion) -> str | None:
    x = node.inputs[0]
    if Conversion(x is not None and x.type.is_quantized, node.output.type.is_quantized) == wanted:
        return None
    words = {False: "float", True: "integers"}
    return f"it takes {words[wanted.takes_integers]} and gives {words[wanted.gives_integers]}"


def _accumulate_problem(node: Node, policy: Accumulate) -> str | None:
    x, w = node.operand(policy.x), node.operand(policy.w)
    if x is None or w is None or not (x.type.is_quantized and w.type.is_quantized):
        return "input and weights must both be quantized, or neither"
    if _any_wide([w]):
        return "weights are int8, whatever the input is"
    parameters = w.type.quantization
    axis = 1 if node.operator.filters is None else node.operator.filters.outputs
    if parameters is not None and parameters.axis not in (None, axis):
        return f"weights are quantized along axis {parameters.axis}, output channels are axis {axis}"
    return None


def _recurrent_problem(node: Node, policy: Recur) -> str | None:
    state, w = node.operand(policy.state), node.operand(policy.w)
    parameters = None if w is None else w.type.quantization
    if parameters is None or parameters.axis not in (None, 1):
        return "its weights must be quantized, one scale for all or one a column"
    if any(
        v is not None and v.type.is_quantized
        for v in [*node.inputs, *node.outputs[1:]]
        if v not in (state, w)
    ):
        return "only its states and weights are quantized"
    return _same_problem([state, node.output])


def _same_problem(values: Sequence[Value | None]) -> str | None:
    parameters = {value.type.quantization for value in values if value is not None}
    return None if len(parameters) == 1 else "operand and result must have the same quantization"


def _elementwise_problem(node: Node, may_be_float: bool) -> str | None:
    """Reason against a node's types; None if all are integers, and plain operands (as of an Affine) float.

    `may_be_float`: the result may be float too.
    """
    stays_float = node.operator.plain_operands
    for name, value in zip(node.operator.operands, node.inputs, strict=False):
        if value is None:
            continue
        if value.type.is_quantized == (name in stays_float):
            return f"operand {name} must be {'float' if name in stays_float else 'quantized'}"
        if value.type.quantization is not None and value.type.quantization.axis is not None:
            return f"operand {name} must have one scale"
    if not may_be_float and not all(value.type.is_quantized for value in node.outputs):
        return "the result must be quantized"
    return None
