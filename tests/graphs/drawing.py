"""Cases: a drawn model, the samples of its inputs, and the results that onnxruntime has for each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from qglow.core.types import Array
from tests.graphs import layers, movement, pointwise
from tests.graphs.builder import MAKERS, NEWEST_OPSET, Builder, Unfit, make_model

OLDEST_OPSET = 7
"""The oldest opset that onnxruntime promises to run."""
SAMPLES = 3
RECURRENT = {"GRU", "LSTM", "RNN"}
RESIZING = {"Resize", "Upsample"}
FAMILIES = (layers, movement, pointwise)


@dataclass(frozen=True)
class Case:
    """A model and samples of its inputs. exact: outputs whose bits every implementation has to have."""

    model: bytes
    samples: tuple[dict[str, Array], ...]
    exact: frozenset[str]
    operators: tuple[str, ...]
    choices: int = 0
    """Bits that say what is checked besides."""

    @property
    def may_lose_nan(self) -> bool:
        """Whether a node finds largest or smallest elements, of which ONNX leaves open what NaN does.

        onnxruntime's recurrent layers bound what goes into their functions, and give numbers for NaN.
        """
        kinds = {node.op_type for node in onnx.load_model_from_string(self.model).graph.node}
        return any("Max" in kind or "Min" in kind or kind in RECURRENT for kind in kinds)

    @property
    def may_lose_numbers(self) -> bool:
        """Whether a node resizes by products with neighbours, some of which have the weight 0.

        Zero times NaN is NaN. Beyond an edge onnxruntime multiplies the inner neighbour by 0, while the
        reference of ONNX (and qglow) takes the edge twice.
        """
        nodes = onnx.load_model_from_string(self.model).graph.node
        modes = {a.s for n in nodes if n.op_type in RESIZING for a in n.attribute if a.name == "mode"}
        return not modes <= {b"nearest"}


@st.composite
def cases(draw: Any) -> Case:
    """Draw a model of one to eight nodes."""
    opset = NEWEST_OPSET - draw(st.integers(0, NEWEST_OPSET - OLDEST_OPSET))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    builder = Builder(draw, opset, rng, draw(st.booleans()))
    names = sorted(MAKERS)
    for _ in range(draw(st.integers(1, 8))):
        grow(builder, draw(st.sampled_from(names)))
    if not builder.nodes or not builder.inputs:
        value = builder.input(builder.floats([1, 3]))
        builder.add("Relu", [value.name], exact=True)
    return finished(builder, draw(st.integers(0, 63)))


def grow(builder: Builder, name: str) -> None:
    """Add an operator, and leave the graph as it was where it does not fit."""
    lists = builder.values, builder.inputs, builder.constants, builder.nodes
    kept = [len(each) for each in lists]
    try:
        MAKERS[name](builder, name)
    except Unfit:
        for each, length in zip(lists, kept, strict=True):
            del each[length:]


def finished(builder: Builder, choices: int = 0) -> Case:
    """The model whose outputs are all values that nothing reads, and now and then one more."""
    read = {name for node in builder.nodes for name in node.input}
    made = [v for v in builder.values if v not in builder.inputs]
    outputs = [v for v in made if v.name not in read] or made[-1:]
    if builder.chance(4):
        outputs += [v for v in made if v not in outputs][:1]
    inputs = [v for v in builder.inputs if v.name in read] or builder.inputs[:1]
    graph = helper.make_graph(
        builder.nodes,
        "graph",
        [
            helper.make_tensor_value_info(
                v.name, onnx.TensorProto.FLOAT, ["N" if builder.free_batch else 1, *v.array.shape[1:]]
            )
            for v in inputs
        ],
        [
            helper.make_tensor_value_info(v.name, helper.np_dtype_to_tensor_dtype(v.array.dtype), None)
            for v in outputs
        ],
        builder.constants,
    )
    samples = [{v.name: v.array for v in inputs}]
    samples += [{v.name: builder.floats(v.array.shape) for v in inputs} for _ in range(SAMPLES - 1)]
    model = make_model(graph, builder.opset).SerializeToString()
    operators = tuple(node.op_type for node in builder.nodes)
    return Case(model, tuple(samples), frozenset(v.name for v in outputs if v.exact), operators, choices)
