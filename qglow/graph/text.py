"""Graphs as text, printed and parsed.

    graph mymodel (%input_1: float<3 x 10>) -> (%output_1) {
      %w: float<10 x 5> = constant #1a2b3c4d5e6f7081
      %b: float<5> = constant {0.0, 1.0, 0.0, 0.0, -2.5}
      %y: float<3 x 5> = Gemm @"Gemm_0" (%input_1, %w, %b) {lo=0.0}
      %output_1: i8[S:0.00390625 O:-128]<3 x 5> = Quantize @"q" (%y)  // real: [0.0, 0.99609375]
      QuantizationProfile @"profile_y" (%y)
      tail #5e6f70811a2b3c4d {kinds="NonZero", operands=["output_1"], ...}
    }

A constant of at most 16 elements is written out, one whose elements are all equal reads
`splat 0.5`, any other is named by a digest of its content, which `parse_graph` looks up; so are
the scales of a value with more than 16 channels: `i8[S:#1a2b3c4d5e6f7081 O:0 A:0]<64 x 3>`. `_`
is an absent optional operand. The model of a tail is named by its digest, too. The regions of a node are
graphs behind its attributes, whose names are their own. Comments are computed and not read.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any

import numpy as np

from qglow.core.text import (
    AttributeValue,
    Lexer,
    build,
    format_attributes,
    format_name,
    format_value,
    parse_attributes,
    parse_type,
    parse_value,
    quote,
)
from qglow.core.types import Array, ElementType, TensorType, format_float
from qglow.graph.fingerprint import content_digest
from qglow.graph.graph import Graph, Node, Value
from qglow.graph.operator import Operator
from qglow.graph.plugins import find_operator
from qglow.host.session import decode, encode
from qglow.host.tail import HostedTail
from qglow.numerics.half import store_as, widen

LARGEST_INLINE = 16
DIGEST_DIGITS = 16
DEEPEST_REGION = 20


def print_graph(graph: Graph) -> str:
    """The text of a graph, ending with a newline. `parse_graph` restores it."""
    inputs = ", ".join(_declaration(value) for value in graph.inputs)
    outputs = ", ".join(_reference(value) for value in graph.outputs)
    lines = [f"graph {format_name(graph.name)} ({inputs}) -> ({outputs}) {{"]
    lines += [f"  {_format_constant(value)}" for value in graph.constants()]
    for node in graph.nodes:
        lines.append(f"  {format_node(node)}")
        for region in node.operator.regions:
            lines += [f"    {line}" for line in print_graph(region).splitlines()]
    if graph.tail is not None:
        digest = constant_digest(_model_array(graph.tail))
        lines.append(f"  tail #{digest} {format_attributes(graph.tail)}")
    return "\n".join([*lines, "}"]) + "\n"


def format_node(node: Node) -> str:
    """One node as it stands in the text of its graph, without the regions that follow it there."""
    operands = ", ".join("_" if value is None else _reference(value) for value in node.inputs)
    text = f"{node.operator.name} @{quote(node.name)} ({operands})"
    if node.outputs:
        text = ", ".join(_declaration(value) for value in node.outputs) + f" = {text}"
    attributes = format_attributes(node.operator)
    return f"{text} {attributes}".rstrip() + _comment(node.outputs)


def constant_digest(data: Array) -> str:
    """The 16 hexadecimal digits that stand for a constant's content in text."""
    return content_digest(data)[:DIGEST_DIGITS]


def constant_data(graph: Graph) -> dict[str, Array]:
    """Digest to data of every constant and list of scales of the graph: what `parse_graph` needs."""
    arrays = [value.data for value in graph.constants() if value.data is not None]
    arrays += [_scale_array(v.type) for v in graph.values() if v.type.quantization is not None]
    arrays += [] if graph.tail is None else [_model_array(graph.tail)]
    found = {constant_digest(data): data for data in arrays}
    for region in graph.regions():
        found |= constant_data(region)
    return found


def _model_array(tail: HostedTail) -> Array:
    return np.frombuffer(decode(tail.model), np.uint8)


def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph of a text; `constants` maps digests to data.

    Raises TextError, also for a digest that `constants` does not have. Only syntax and names are
    checked: `verify_graph` does the rest.
    """
    lexer = Lexer(text)
    graph = _Parser(lexer, constants or {}).graph()
    if lexer.peek.kind != "end":
        lexer.fail("text after the end of the graph")
    return graph


def _reference(value: Value) -> str:
    return f"%{format_name(value.name)}"


def _declaration(value: Value) -> str:
    return f"{_reference(value)}: {_format_type(value.type)}"


def _format_type(kind: TensorType) -> str:
    """Format a type like `str`, but a long list of scales as its digest."""
    if kind.quantization is None or len(kind.quantization.scales) <= LARGEST_INLINE:
        return str(kind)
    return kind.naming(kind.quantization.naming(f"#{constant_digest(_scale_array(kind))}"))


def _scale_array(kind: TensorType) -> Array:
    assert kind.quantization is not None
    return np.array(kind.quantization.scales, np.float32)


def _comment(values: tuple[Value, ...]) -> str:
    ranges = [value.type.real_range() for value in values]
    shown = [f"[{format_float(r[0])}, {format_float(r[1])}]" for r in ranges if r is not None]
    return f"  // real: {', '.join(shown)}" if shown else ""


def _format_constant(value: Value) -> str:
    assert value.data is not None
    return f"{_declaration(value)} = constant {_format_data(value.data)}" + _comment((value,))


def _format_data(data: Array) -> str:
    if data.size <= LARGEST_INLINE:
        return "{" + ", ".join(_format_element(element) for element in widen(data).reshape(-1)) + "}"
    flat = data.reshape(-1)
    if bool(np.all(flat == flat[0])) and not (flat[0] == 0 and np.any(np.signbit(widen(flat)))):
        return f"splat {_format_element(widen(flat[:1])[0])}"
    return f"#{constant_digest(data)}"


def _format_element(element: Any) -> str:
    if isinstance(element, np.float64):
        return repr(float(element))
    return format_value(element.item())


class _Parser:
    """Recursive descent over one graph of a text; a region is a graph whose names are its own."""

    def __init__(self, lexer: Lexer, constants: Mapping[str, Array], depth: int = 0) -> None:
        self._lexer = lexer
        self._depth = depth
        self._constants = constants
        self._values: dict[str, Value] = {}

    def graph(self) -> Graph:
        lexer = self._lexer
        lexer.expect("graph")
        graph = Graph(lexer.name(), [], [], [])
        lexer.expect("(")
        while not lexer.accept(")"):
            graph.inputs.append(self._declared())
            self._separator(")")
        lexer.expect("->")
        lexer.expect("(")
        outputs = self._output_names()
        lexer.expect("{")
        while not lexer.accept("}"):
            if lexer.accept("tail"):
                graph.tail = self._tail()
                continue
            node = self._statement()
            if node is not None:
                graph.nodes.append(node)
        graph.outputs = [self._known(name) for name in outputs]
        return graph

    def _tail(self) -> HostedTail:
        lexer = self._lexer
        token = lexer.expect("#")
        digest = lexer.digest()
        model = self._constants.get(digest)
        if model is None or model.dtype != np.uint8:
            lexer.fail(f"no model is given for tail #{digest}", token)
        return build(HostedTail, parse_attributes(lexer), lexer, token, model=encode(model.tobytes()))

    def _output_names(self) -> list[str]:
        names: list[str] = []
        while not self._lexer.accept(")"):
            self._lexer.expect("%")
            names.append(self._lexer.name())
            self._separator(")")
        return names

    def _separator(self, end: str) -> None:
        if not self._lexer.at(end):
            self._lexer.expect(",")

    def _declared(self) -> Value:
        lexer = self._lexer
        lexer.expect("%")
        token = lexer.peek
        name = lexer.name()
        if name in self._values:
            lexer.fail(f"%{name} is declared twice", token)
        lexer.expect(":")
        self._values[name] = Value(name, parse_type(lexer, self._scales))
        return self._values[name]

    def _scales(self, digest: str) -> list[float] | None:
        found = self._constants.get(digest)
        return None if found is None or found.dtype != np.float32 else [float(s) for s in found.reshape(-1)]

    def _known(self, name: str) -> Value:
        if name not in self._values:
            self._lexer.fail(f"%{name} is not declared")
        return self._values[name]

    def _statement(self) -> Node | None:
        """A node, or None after a constant."""
        lexer = self._lexer
        outputs: list[Value] = []
        if lexer.at("%"):
            outputs.append(self._declared())
            while lexer.accept(","):
                outputs.append(self._declared())
            lexer.expect("=")
        if len(outputs) == 1 and lexer.accept("constant"):
            outputs[0].data = self._data(outputs[0].type)
            return None
        return self._node(outputs)

    def _node(self, outputs: list[Value]) -> Node:
        lexer = self._lexer
        token = lexer.peek
        cls = find_operator(lexer.name())
        if cls is None:
            lexer.fail(f"unknown operator '{token.text}'", token)
        lexer.expect("@")
        name = lexer.name()
        inputs = self._operands(outputs)
        attributes = parse_attributes(lexer)
        regions = {name: self._region() for name in cls.region_names}
        operator: Operator = build(cls, attributes, lexer, token, **regions)
        return Node(name, operator, inputs, outputs)

    def _region(self) -> Graph:
        if self._depth == DEEPEST_REGION:
            self._lexer.fail(f"regions are nested more than {DEEPEST_REGION} deep")
        return _Parser(self._lexer, self._constants, self._depth + 1).graph()

    def _operands(self, outputs: list[Value]) -> list[Value | None]:
        lexer = self._lexer
        inputs: list[Value | None] = []
        lexer.expect("(")
        while not lexer.accept(")"):
            inputs.append(None if lexer.accept("_") else self._operand(outputs))
            self._separator(")")
        return inputs

    def _operand(self, outputs: list[Value]) -> Value:
        self._lexer.expect("%")
        token = self._lexer.peek
        value = self._values.get(self._lexer.name())
        if value is None or value in outputs:
            self._lexer.fail(f"%{token.text} is not declared before this", token)
        return value

    def _data(self, kind: TensorType) -> Array:
        lexer = self._lexer
        token = lexer.peek
        if lexer.accept("#"):
            digest = lexer.digest()
            found = self._constants.get(digest)
            if found is None:
                lexer.fail(f"no data is given for constant #{digest}", token)
            return found
        if lexer.accept("splat"):
            return np.full(kind.shape, _stored([self._element(kind)], kind.with_shape((1,)))[0])
        lexer.expect("{")
        elements: list[AttributeValue] = []
        while not lexer.accept("}"):
            elements.append(self._element(kind))
            self._separator("}")
        if len(elements) != kind.size:
            lexer.fail(f"{len(elements)} elements for {kind}", token)
        return _stored(elements, kind)

    def _element(self, kind: TensorType) -> AttributeValue:
        lexer = self._lexer
        if kind.is_half or kind.element in (ElementType.FLOAT, ElementType.DOUBLE):
            return lexer.number()
        token = lexer.peek
        if kind.element is ElementType.BOOL:
            flag = parse_value(lexer)
            if not isinstance(flag, bool):
                lexer.fail(f"{token.text} is no bool", token)
            return flag
        value = lexer.integer()
        limits = np.iinfo(kind.element.dtype)
        if not limits.min <= value <= limits.max:
            lexer.fail(f"{value} is no {kind.element.value}", token)
        return value


def _stored(elements: list[AttributeValue], kind: TensorType) -> Array:
    """Elements as the array that a constant of this type holds."""
    if kind.is_half:
        return store_as(np.array(elements, np.float32), kind.element).reshape(kind.shape)
    return np.array(elements, kind.element.dtype).reshape(kind.shape)


def _as_text(graph: Graph) -> tuple[Any, tuple[str, dict[str, Array]]]:
    return parse_graph, (print_graph(graph), constant_data(graph))


# A graph is pickled as text: following its values from node to node would go as deep as the graph is long.
copyreg.pickle(Graph, _as_text)
