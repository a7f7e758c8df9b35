"""One ONNX model for all shapes, made of exports for some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.exporter.sizes import AmbiguityError
from qglow.exporter.unify import SizedModel, StructureError, unify
from tests.unit.importer.tiny import session

INPUTS = {"x": ["N", "T"]}
Constants = Callable[[int, int], Mapping[str, Array]]
TABLE = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def export(
    nodes: Sequence[onnx.NodeProto],
    constants: Constants,
    n: int,
    t: int,
    shape: Callable[[int, int], Sequence[int]],
) -> SizedModel:
    """A model of x [N, T] with output y, as it is for two sizes."""
    stored = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants(n, t).items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, t])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape(n, t))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    model = helper.make_model(
        helper.make_graph(copies, "tiny", [x], [y], stored),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    return SizedModel({"N": n, "T": t}, model, {"x": (n, t)})


def reshaped(target: Callable[[int, int], Sequence[int]]) -> tuple[list[onnx.NodeProto], Constants]:
    nodes = [helper.make_node("Reshape", ["x", "target"], ["y"], "reshape", allowzero=1)]
    return nodes, lambda n, t: {"target": np.array(target(n, t), np.int64)}


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (lambda n, t: (n, t, 1), [0, 0, 1]),
        (lambda n, t: (n * t,), [-1]),
        (lambda n, t: (n, 1, t), [0, 1, -1]),
        (lambda n, t: (1, n, 1, t), None),
        (lambda n, t: (t, n), None),
    ],
)
def test_reshape_copies_concludes_or_computes(
    target: Callable[[int, int], Sequence[int]], found: list[int] | None
) -> None:
    nodes, constants = reshaped(target)
    models = [export(nodes, constants, n, t, target) for n, t in ((1, 4), (2, 12))]
    model = unify(models, INPUTS)
    if found is not None:
        assert [numpy_helper.to_array(tensor).tolist() for tensor in model.graph.initializer] == [found]
        assert [node.op_type for node in model.graph.node] == ["Reshape"]
    for n, t in ((1, 4), (3, 5), (7, 1)):
        x = np.random.default_rng(n).normal(size=(n, t)).astype(np.float32)
        assert np.array_equal(session(model).run(None, {"x": x})[0], x.reshape(target(n, t)))


def added(constant: Callable[[int, int], Array]) -> tuple[list[onnx.NodeProto], Constants]:
    nodes = [
        helper.make_node("Cast", ["c"], ["real"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "real"], ["y"], "add"),
    ]
    return nodes, lambda n, t: {"c": constant(n, t)}


@pytest.mark.parametrize(
    "constant",
    [
        lambda n, t: np.full((n, t), 3, np.int8),
        lambda n, t: np.tile(np.arange(2, dtype=np.float32).reshape(1, 1, 2), (n, t, 1))[:, :, 1],
        lambda n, t: np.arange(t)[None],
        lambda n, t: 5 + 2 * np.arange(t)[None] - 3 * np.arange(n)[:, None],
        lambda n, t: np.arange(n * t).reshape(n, t),
        lambda n, t: np.tile(np.arange(t), (n, 1)),
        lambda n, t: TABLE[:t, 1][None],
        lambda n, t: np.tile(TABLE[4 : t + 4, 2], (n, 1)),
    ],
)
def test_constants_that_follow_shapes_are_computed(constant: Callable[[int, int], Array]) -> None:
    nodes, constants = added(constant)
    sizes = ((1, 4), (2, 12), (5, 20))
    models = [export(nodes, constants, n, t, lambda n, t: (n, t)) for n, t in sizes]
    model = unify(models, INPUTS, lambda: [np.zeros(0, np.float32), TABLE[:, 1], TABLE[:, 2]])
    output = model.graph.output[0].type.tensor_type.shape.dim
    assert [dimension.dim_param for dimension in output] == ["N", "T"]
    for n, t in ((1, 4), (5, 3), (2, 30)):
        x = np.zeros((n, t), np.float32)
        found = session(model).run(None, {"x": x})[0]
        assert np.array_equal(found, np.broadcast_to(constant(n, t), (n, t)).astype(np.float32))


def test_rows_that_begin_again_are_repeated() -> None:
    """Weights of all heads, once for each sample."""
    nodes = [helper.make_node("Identity", ["c"], ["y"], "copy")]
    models = [
        export(nodes, lambda n, t: {"c": np.tile(TABLE[:3], (n, 1))}, n, t, lambda n, t: (3 * n, 3))
        for n, t in ((2, 4), (4, 12), (6, 20))
    ]
    model = unify(models, INPUTS)
    for n in (1, 5):
        found = session(model).run(None, {"x": np.zeros((n, 2), np.float32)})[0]
        assert np.array_equal(found, np.tile(TABLE[:3], (n, 1)))


def test_an_output_that_is_a_constant_is_repeated_too() -> None:
    """The deviation of a policy, once for each sample, is read by no node."""

    def constants(n: int, t: int) -> dict[str, Array]:
        return {"y": np.tile(TABLE[:1], (n, 1))}

    models = [export([], constants, n, t, lambda n, t: (n, 3)) for n, t in ((1, 4), (2, 12), (5, 20))]
    model = unify(models, INPUTS)
    for n in (1, 7):
        found = session(model).run(None, {"x": np.zeros((n, 2), np.float32)})[0]
        assert np.array_equal(found, np.tile(TABLE[:1], (n, 1)))


def test_bounds_of_slices_count_from_the_end() -> None:
    nodes = [helper.make_node("Slice", ["x", "starts", "ends", "axes"], ["y"], "slice")]

    def constants(n: int, t: int) -> dict[str, Array]:
        return {"starts": np.array([t - 3]), "ends": np.array([t]), "axes": np.array([1])}

    model = unify([export(nodes, constants, n, t, lambda n, t: (n, 3)) for n, t in ((1, 4), (2, 12))], INPUTS)
    assert [node.op_type for node in model.graph.node] == ["Slice"]
    x = np.arange(14, dtype=np.float32).reshape(2, 7)
    assert np.array_equal(session(model).run(None, {"x": x})[0], x[:, -3:])


def test_expressions_that_two_exports_leave_open_want_a_third() -> None:
    # Between the first two, N and T grow alike.
    nodes, constants = added(lambda n, t: np.full((n, t), 3, np.int8))
    models = [export(nodes, constants, n, t, lambda n, t: (n, t)) for n, t in ((2, 4), (6, 12), (4, 20))]
    with pytest.raises(AmbiguityError, match=r"2\*N or T"):
        unify(models[:2], INPUTS)
    found = session(unify(models, INPUTS)).run(None, {"x": np.zeros((3, 5), np.float32)})[0]
    assert np.array_equal(found, np.full((3, 5), 3))


def test_other_nodes_are_another_structure() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    other = [helper.make_node("Abs", ["x"], ["y"], "relu")]
    models = [
        export(which, lambda n, t: {}, n, 4, lambda n, t: (n, t)) for which, n in ((nodes, 1), (other, 2))
    ]
    with pytest.raises(StructureError, match="node 'relu' depends on shapes"):
        unify(models, INPUTS)


@pytest.mark.parametrize(
    "constant",
    [
        lambda n, t: np.random.default_rng(t).normal(size=(1, t)).astype(np.float32),
        lambda n, t: np.full((1, 1), 1.0 / t, np.float32),
        lambda n, t: TABLE[10 - t // 4 : 10 + t - t // 4, 0][None],
    ],
)
def test_constants_that_nothing_explains_are_refused(constant: Callable[[int, int], Array]) -> None:
    nodes, constants = added(constant)
    models = [export(nodes, constants, n, t, lambda n, t: (n, t)) for n, t in ((1, 4), (2, 12))]
    with pytest.raises(UnsupportedError, match="constant 'c' depends on shapes"):
        unify(models, INPUTS, lambda: [TABLE[:, 0]])


def shuffled(n: int, t: int) -> SizedModel:
    """x [N, T] in rows of half its length, by pooling, that are moved behind one another: [N, 1, T / 2]."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "one"], ["image"], "unsqueeze"),
        helper.make_node("MaxPool", ["image"], ["half"], "pool", kernel_shape=[2], strides=[2]),
        helper.make_node("Reshape", ["half", "target"], ["rows"], "reshape", allowzero=1),
        helper.make_node("Identity", ["rows"], ["y"], "identity"),
    ]

    def constants(n: int, t: int) -> Mapping[str, Array]:
        return {"one": np.array([1]), "target": np.array([1, n, 1, t // 2], np.int64)}

    made = export(nodes, constants, n, t, lambda n, t: (1, n, 1, t // 2))
    return SizedModel(made.sizes, made.model, {**made.shapes, "image": (n, 1, t), "half": (n, 1, t // 2)})


def test_a_size_behind_strides_is_read_from_the_operand() -> None:
    """Both exports fit 16 * N * N: one of the two shapes would have been computed by that."""
    model = unify([shuffled(1, 32), shuffled(2, 128)], INPUTS)
    run = session(model)
    for n, t in ((1, 32), (3, 40), (2, 11)):
        x = np.arange(n * t, dtype=np.float32).reshape(n, t)
        wanted = x[:, : t // 2 * 2].reshape(n, t // 2, 2).max(2)[None, :, None]
        np.testing.assert_array_equal(run.run(None, {"x": x})[0], wanted)


def tiled(n: int, t: int) -> SizedModel:
    """Maxima of windows of x [N, T], repeated and merged, then divided and added up again."""
    height, width = n // 2, t // 3
    nodes = [
        helper.make_node("MaxPool", ["x"], ["few"], "pool", kernel_shape=[2, 3], strides=[2, 3]),
        helper.make_node("Reshape", ["few", "apart"], ["single"], "apart", allowzero=1),
        helper.make_node("Tile", ["single", "repeats"], ["repeated"], "tile"),
        helper.make_node("Reshape", ["repeated", "whole"], ["image"], "merge", allowzero=1),
        helper.make_node("Reshape", ["image", "parts"], ["divided"], "split", allowzero=1),
        helper.make_node("ReduceSum", ["divided", "axes"], ["y"], "sum", keepdims=0),
    ]
    shapes = {
        "few": (1, 1, height, width),
        "single": (1, 1, height, 1, width, 1),
        "repeated": (1, 1, height, 3, width, 5),
        "image": (1, 1, 3 * height, 5 * width),
    }

    def constants(n: int, t: int) -> Mapping[str, Array]:
        return {
            "apart": np.array(shapes["single"], np.int64),
            "repeats": np.array([1, 1, 1, 3, 1, 5], np.int64),
            "whole": np.array(shapes["image"], np.int64),
            "parts": np.array(shapes["repeated"], np.int64),
            "axes": np.array([3, 5], np.int64),
        }

    made = export(nodes, constants, n, t, lambda n, t: (1, 1, n // 2, t // 3))
    made.model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, n, t]))
    return SizedModel(made.sizes, made.model, {"x": (1, 1, n, t), **shapes})


def test_merged_and_divided_sizes_behind_strides_are_read_from_the_operand() -> None:
    """What puts zeros between pixels, shuffles them or cuts windows does so at sizes that no input has."""
    run = session(unify([tiled(8, 12), tiled(24, 48)], {"x": [1, 1, "N", "T"]}))
    for n, t in ((8, 12), (6, 15), (5, 22)):
        x = np.random.default_rng(n).normal(size=(1, 1, n, t)).astype(np.float32)
        wanted = x[..., : n // 2 * 2, : t // 3 * 3].reshape(n // 2, 2, t // 3, 3).max((1, 3))
        np.testing.assert_allclose(run.run(None, {"x": x})[0][0, 0], 15 * wanted, rtol=1e-5)


def test_a_factor_wants_a_third_export() -> None:
    nodes, constants = reshaped(lambda n, t: (1, 16 * n, 1, t // 16))

    def exports(*sizes: tuple[int, int]) -> list[SizedModel]:
        return [export(nodes, constants, n, t, lambda n, t: (1, 16 * n, 1, t // 16)) for n, t in sizes]

    with pytest.raises(AmbiguityError, match="another export has to confirm"):
        unify(exports((1, 32), (2, 96)), INPUTS)
    model = unify(exports((1, 32), (2, 96), (3, 160)), INPUTS)
    assert session(model).run(None, {"x": np.ones((2, 48), np.float32)})[0].shape == (1, 32, 1, 3)
