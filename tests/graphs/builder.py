"""A graph that grows node by node; onnxruntime runs each node, so that shapes and values are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qglow.core.types import Array

Draw = Callable[[st.SearchStrategy[Any]], Any]
Maker = Callable[["Builder", str], None]

MAKERS: dict[str, Maker] = {}
"""Function that adds a node of an operator, by the operator's name."""

IR_VERSION = 10
NEWEST_OPSET = 24
"""The newest opset of which onnxruntime implements nearly all operators."""
MOST_ELEMENTS = 2000


def makes(*names: str) -> Callable[[Maker], Maker]:
    """Decorator: the function adds nodes of these operators."""

    def register(maker: Maker) -> Maker:
        for name in names:
            assert name not in MAKERS, name
            MAKERS[name] = maker
        return maker

    return register


@dataclass(frozen=True)
class Value:
    """A value of the graph. exact: whether every implementation has the same bits, as for what only moves."""

    name: str
    array: Array
    exact: bool = True
    is_constant: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.array.ndim


@dataclass
class Builder:
    """What has been drawn so far."""

    draw: Draw
    opset: int
    rng: np.random.Generator
    free_batch: bool
    values: list[Value] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    def number(self, low: int, high: int) -> int:
        """An integer, both bounds included; shrinks to the low one."""
        return int(self.draw(st.integers(low, high)))

    def chance(self, one_in: int = 2) -> bool:
        """True for one of so many draws; shrinks to False."""
        return self.number(0, one_in - 1) == one_in - 1

    def choice(self, options: Sequence[Any]) -> Any:
        """One of several; shrinks to the first."""
        return options[self.number(0, len(options) - 1)]

    def shape(self, rank: int) -> list[int]:
        """Small sizes; now and then one is 1, and rarely 0."""
        sizes = [1, *(self.number(1, 6) for _ in range(rank - 1))][:rank]
        if rank > 1 and self.chance(60):
            sizes[self.number(1, rank - 1)] = 0
        return sizes

    def floats(self, shape: Sequence[int], scale: float = 1.0) -> Array:
        """Random float32 numbers around 0."""
        return (self.rng.standard_normal(tuple(shape)) * scale).astype(np.float32)

    def name(self) -> str:
        """A name that is new, and odd now and then."""
        count = len(self.nodes) + len(self.inputs) + len(self.constants) + len(self.outputs)
        return (
            self.choice(("v{}", "v{}", "layer/{}:0", "größe {}", "{}", "%{}.x", 'a\\{}"b')).format(count)
            + f"_{len(self.values)}"
        )

    def input(self, array: Array) -> Value:
        """A new input of the model with this as its first sample."""
        value = Value(self.name(), array)
        self.inputs.append(value)
        self.values.append(value)
        return value

    def constant(self, array: Any, dtype: type | None = None) -> str:
        """Name of a new constant: an initializer or the result of a Constant node."""
        array = np.asarray(array, dtype)
        name = f"c{len(self.constants) + len(self.nodes)}_{len(self.values)}"
        tensor = numpy_helper.from_array(array, name)
        if self.chance(4):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.constants.append(tensor)
        self._known[name] = Value(name, array, True, True)
        return name

    _known: dict[str, Value] = field(default_factory=dict)

    def pick(
        self,
        rank: int | tuple[int, int] = (1, 5),
        dtype: Any = np.float32,
        exact: bool = False,
        least: int = 0,
    ) -> Value:
        """A value of this type and rank, or a new input of it. least: smallest size behind the batch."""
        low, high = (rank, rank) if isinstance(rank, int) else rank
        fitting = [
            v
            for v in reversed(self.values)
            if low <= v.rank <= high
            and v.array.dtype == dtype
            and (v.exact or not exact)
            and all(size >= least for size in v.array.shape)
        ]
        if fitting and not self.chance(8):
            return fitting[min(self.number(0, 3), len(fitting) - 1)]
        shape = [
            max(size, least) if i else size
            for i, size in enumerate(
                self.shape(self.number(max(low, 1), min(high, 4) if high >= max(low, 1) else high))
            )
        ]
        if dtype == np.float32:
            return self.input(self.floats(shape))
        source = self.pick((low, high), exact=True) if self.values or low else self.input(self.floats(shape))
        return self.converted(source, dtype)

    def converted(self, value: Value, dtype: Any) -> Value:
        """An exact value of another type, by a comparison or Cast."""
        if dtype == np.bool_ and self.opset >= 9:
            found = self.add("Greater", [value.name, self.constant(np.float32(0.1))], exact=True)
        else:
            to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            found = self.add("Cast", [value.name], exact=True, to=to)
        if not found:
            raise Unfit
        return found[0]

    def has_attribute(self, op: str, attribute: str) -> bool:
        """Whether the operator has it in this opset."""
        return attribute in self.schema(op).attributes

    def schema(self, op: str) -> Any:
        """Definition of an operator in this opset."""
        try:
            return onnx.defs.get_schema(op, self.opset)
        except onnx.defs.SchemaError as error:
            raise Unfit from error

    def listed(self, op: str, attribute: str, numbers: Sequence[int]) -> tuple[list[str], dict[str, Any]]:
        """Numbers as an attribute or as a further input, whichever this opset has."""
        if self.has_attribute(op, attribute):
            return [], {attribute: list(numbers)}
        return [self.constant(numbers, np.int64)], {}

    def add(
        self, op: str, inputs: Sequence[str], *, outputs: int = 1, exact: bool = False, **attributes: Any
    ) -> list[Value]:
        """Add a node and return its results. Raises Unfit where onnxruntime cannot run it."""
        self.schema(op)
        known = {**self._known, **{v.name: v for v in self.values}}
        read = [known[name] for name in inputs if name]
        names = [self.name() + (f"_{i}" if i else "") for i in range(outputs)]
        kept = {key: value for key, value in attributes.items() if value is not None}
        node = helper.make_node(op, list(inputs), names, name=f"n{len(self.nodes)}", **kept)
        arrays = run_node(node, read, self.opset)
        if any(a.size > MOST_ELEMENTS or a.dtype == object for a in arrays):
            raise Unfit
        self.nodes.append(node)
        is_exact = exact and all(v.exact for v in read)
        made = [
            Value(n, a, is_exact, all(v.is_constant for v in read))
            for n, a in zip(names, arrays, strict=True)
        ]
        self.values.extend(made)
        return made


class Unfit(Exception):
    """The drawn node is not in this opset, or not one that onnxruntime runs."""


def run_node(node: onnx.NodeProto, read: Sequence[Value], opset: int) -> list[Array]:
    """Results of one node for known inputs."""
    unique = {v.name: v for v in read}
    graph = helper.make_graph(
        [node],
        "node",
        [helper.make_tensor_value_info(v.name, _type(v.array), v.array.shape) for v in unique.values()],
        [onnx.ValueInfoProto(name=name) for name in node.output],
    )
    try:
        session = open_session(make_model(graph, opset).SerializeToString())
        return [np.asarray(a) for a in session.run(None, {v.name: v.array for v in unique.values()})]
    except Exception as error:  # every error of onnxruntime has a class of its own
        raise Unfit from error


def make_model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    """A model of one graph."""
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)


def open_session(model: bytes) -> onnxruntime.InferenceSession:
    """A session of onnxruntime that computes as the operators are defined."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _type(array: Array) -> int:
    return (
        int(helper.np_dtype_to_tensor_dtype(array.dtype)) if array.dtype != object else TensorProto.UNDEFINED
    )
