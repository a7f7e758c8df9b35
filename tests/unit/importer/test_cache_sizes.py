"""Widths of caches that a file leaves open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qglow.importer.cache_sizes import settle_cache_widths, window_places

HEADS, GROUPS, DEPTH, WIDTH = 4, 2, 16, 32
PACKED = (HEADS + 2 * GROUPS) * DEPTH


def model(nodes: Sequence[onnx.NodeProto], q: list[str], element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A model whose attention reads `q` and a cache with an open width."""
    info = helper.make_tensor_value_info
    weights = [
        numpy_helper.from_array(np.zeros((WIDTH, PACKED), np.float32), "w"),
        numpy_helper.from_array(np.zeros(PACKED, np.float32), "b"),
    ]
    attention = helper.make_node(
        "GroupQueryAttention",
        [*q, "past_k", "past_v", "last", "total"],
        ["y", "keys", "values"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=GROUPS,
        local_window_size=5,
        sliding_window_cache=1,
    )
    caches = [info(name, element, [1, GROUPS, "past", "width"]) for name in ("past_k", "past_v")]
    x = info("x", TensorProto.FLOAT, [1, "new", WIDTH])
    counts = [info("last", TensorProto.INT32, [1]), info("total", TensorProto.INT32, [])]
    y = info("y", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph([*nodes, attention], "g", [x, *caches, *counts], [y], weights))


def width(proto: onnx.ModelProto) -> int:
    """The width of both caches once it is settled, or 0."""
    settle_cache_widths(proto, proto.graph.node)
    (found,) = {
        v.type.tensor_type.shape.dim[-1].dim_value for v in proto.graph.input if v.name.startswith("past")
    }
    return found


def product() -> onnx.NodeProto:
    return helper.make_node("MatMul", ["x", "w"], ["xw"])


def test_a_product_tells_the_width() -> None:
    assert width(model([product()], ["xw", "", ""])) == DEPTH


def test_a_bias_behind_a_product_changes_nothing() -> None:
    added = helper.make_node("Add", ["b", "xw"], ["q"])
    assert width(model([product(), added], ["q", "", ""])) == DEPTH


def test_a_product_with_weights_in_blocks_tells_the_width() -> None:
    block = helper.make_node(
        "MatMulNBits", ["x", "c", "s"], ["q"], domain="com.microsoft", K=WIDTH, N=PACKED, bits=4
    )
    assert width(model([block], ["q", "", ""])) == DEPTH


def test_a_declared_shape_tells_the_width() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["q"])], ["q", "k", "v"])
    declared = helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, "new", HEADS * DEPTH])
    proto.graph.value_info.append(declared)
    assert width(proto) == DEPTH


@pytest.mark.parametrize("q", ["x", "unknown"])
def test_what_nothing_tells_stays_open(q: str) -> None:
    """The heads do not divide 32 columns of `x`, and nothing declares the other one."""
    relu = helper.make_node("Relu", ["x"], ["unknown"])
    proto = model([relu], [q, "", ""])
    if q == "x":
        proto.graph.input[0].type.tensor_type.shape.dim[-1].dim_value = WIDTH + 1
    assert width(proto) == 0


def test_caches_of_integers_stay_open() -> None:
    assert width(model([product()], ["xw", "", ""], TensorProto.UINT8)) == 0


def test_windows_have_places() -> None:
    assert window_places(model([product()], ["xw", "", ""]).graph.node) == {"past_k": 5, "past_v": 5}
