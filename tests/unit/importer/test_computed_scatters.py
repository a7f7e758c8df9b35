"""Updates at places that are computed while the model runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper

from qglow.core.errors import UndecidedError
from qglow.core.types import Array
from qglow.graph.interpreter import Interpreter
from qglow.graph.ops.logic import Compare
from qglow.importer import import_model
from qglow.toolchain import compile_graph
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
JOINED = [node("Concat", ["every", "i"], ["tuples"], axis=-1), node("ScatterND", ["x", "tuples", "u"], ["y"])]
EVERY = np.arange(3)
HEADS = np.broadcast_to(EVERY[:, None, None], (3, 2, 1))


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def tuples(reduction: str = "none") -> NodeProto:
    return node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)


def along(axis: int, reduction: str = "none") -> NodeProto:
    return node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)


CASES: dict[str, tuple[list[NodeProto], tuple[int, ...], Array, tuple[int, ...], dict[str, Array]]] = {
    "one-of-each-row": (JOINED, (3, 5), whole(4, 0, -2)[:, None], (3,), {"every": EVERY[:, None]}),
    "a-slice-of-each-row": (JOINED, (3, 5, 2), whole(4, 0, -2)[:, None], (3, 2), {"every": EVERY[:, None]}),
    "some-of-each-row": (
        JOINED,
        (3, 5, 2),
        whole(4, 0, -2, 1, 3, 3).reshape(3, 2, 1),
        (3, 2, 2),
        {"every": HEADS},
    ),
    "in-front": (
        [node("Concat", ["i", "every"], ["tuples"], axis=-1), node("ScatterND", ["x", "tuples", "u"], ["y"])],
        (5, 3),
        whole(4, 0, -2)[:, None],
        (3,),
        {"every": EVERY[:, None]},
    ),
    "elements": ([tuples()], (4, 5), whole(3, 1, 0, -5, -1, 2, 3, 1).reshape(4, 2), (4,), {}),
    "slices": ([tuples()], (4, 5), whole(2, 0, 2)[:, None], (3, 5), {}),
    "outside": ([tuples()], (4, 5), whole(1)[:, None], (1, 5), {}),
    "column": ([along(0)], (4, 5), whole(3, 1, 0, -1, 2)[None], (1, 5), {}),
    "along": (
        [along(1)],
        (3, 5, 2),
        whole(4, 0, 2, -5, -1, 2, 3, 1, 1, 1, 0, 4).reshape(3, 2, 2),
        (3, 2, 2),
        {},
    ),
    **{
        reduction: ([along(-1, reduction)], (3, 5), whole(4, 0, -2)[:, None], (3, 1), {})
        for reduction in ("add", "mul", "max", "min")
    },
}


def made(name: str, element: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    nodes, shape, index, updates, constants = CASES[name]
    kinds = {"input_type": element, "output_type": element}
    model = tiny_model(nodes, {"x": shape, "u": updates}, ["y"], constants, opset=18, **kinds)
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, index.shape))
    random, dtype = np.random.default_rng(4), helper.tensor_dtype_to_np_dtype(element)
    x, u = (random.integers(-9, 9, size).astype(dtype) for size in (shape, updates))
    return model, {"x": x, "u": u, "i": index}


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.INT64], ids=["reals", "integers"])
@pytest.mark.parametrize("name", CASES)
def test_updates_are_written_where_onnxruntime_writes_them(name: str, element: int, tmp_path: Path) -> None:
    model, feeds = made(name, element)
    path = save(model, tmp_path)
    graph = import_model(path, native=True).graph
    (expected,) = session(path).run(None, feeds)
    np.testing.assert_array_equal(Interpreter(graph).run(feeds)["y"], expected)
    np.testing.assert_array_equal(compile_graph(graph)(feeds)["y"], expected)


def test_axes_that_updates_share_are_not_compared(tmp_path: Path) -> None:
    """Each row has one update, so that every element is compared once."""
    graph = import_model(save(made("one-of-each-row", TensorProto.FLOAT)[0], tmp_path), native=True).graph
    (compared,) = (each.output.type for each in graph.nodes if each.operator == Compare(relation="equal"))
    assert compared.size == 15


@pytest.mark.parametrize("data", ["x", "nothing"])
def test_one_number_needs_no_table_of_updates(data: str, tmp_path: Path) -> None:
    nodes = [node("ScatterND", [data, "i", "one"], ["y"])]
    constants = {"one": np.ones((3, 5), np.float32), "nothing": np.zeros((4, 5), np.float32)}
    model = tiny_model(nodes, {"x": (4, 5)}, ["y"], constants, opset=18)
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, (3, 1)))
    path = save(model, tmp_path)
    graph = import_model(path, native=True).graph
    feeds = {
        "x": np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32),
        "i": whole(3, 0, 3)[:, None],
    }
    np.testing.assert_array_equal(Interpreter(graph).run(feeds)["y"], session(path).run(None, feeds)[0])
    assert not any(each.operator.name.startswith("Gather") for each in graph.nodes)


def test_sums_of_several_updates_are_refused(tmp_path: Path) -> None:
    model = tiny_model([along(1, "add")], {"x": (3, 5), "u": (3, 2)}, ["y"], opset=18)
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, (3, 2)))
    with pytest.raises(UndecidedError, match="the values of input 'i' decide"):
        import_model(save(model, tmp_path), native=True)


def test_more_comparisons_than_the_data_are_worth_are_refused(tmp_path: Path) -> None:
    model = tiny_model([tuples()], {"x": (4096,), "u": (4096,)}, ["y"], opset=18)
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, (4096, 1)))
    with pytest.raises(UndecidedError, match="the values of input 'i' decide"):
        import_model(save(model, tmp_path), native=True)
