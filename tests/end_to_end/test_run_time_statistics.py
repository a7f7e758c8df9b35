"""Means and deviations over tokens (statistics pooling, x-vectors): the bits of programs for each size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from tests.end_to_end.bits import same
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, session, tiny_model

node = helper.make_node
WIDTH = 12
RANDOM = np.random.default_rng(5)
CONSTANTS = {
    "w": (RANDOM.normal(size=(WIDTH, WIDTH)) / 3).astype(np.float32),
    "place": np.array(1),
    "one": np.array(1, np.float32),
    "tiny": np.array(1e-3, np.float32),
    "half": np.array([0.5], np.float32),
}
BOUNDS = {"N": 8, "T": 16}
SIZES = ((8, 16), (1, 2), (3, 5), (8, 3), (2, 16), (1, 1), (5, 1), (7, 15), (8, 16))


def statistics(keepdims: int, *behind: NodeProto) -> list[NodeProto]:
    """Mean and variance as PyTorch's exporters write it: n / (n - 1) times the mean of squares."""
    return [
        node("MatMul", ["x", "w"], ["h"]),
        node("ReduceMean", ["h"], ["mean"], axes=[1], keepdims=keepdims),
        node("ReduceMean", ["h"], ["middle"], axes=[1], keepdims=1),
        node("Sub", ["h", "middle"], ["moved"]),
        node("Mul", ["moved", "moved"], ["squares"]),
        node("ReduceMean", ["squares"], ["spread"], axes=[1], keepdims=keepdims),
        node("Shape", ["h"], ["sizes"]),
        node("Gather", ["sizes", "place"], ["t"]),
        node("Cast", ["t"], ["n"], to=TensorProto.FLOAT),
        node("Mul", ["spread", "n"], ["sum"], name="times_n"),
        node("Sub", ["n", "one"], ["fewer"]),
        node("Div", ["sum", "fewer"], ["variance"], name="over_fewer"),
        *behind,
    ]


DEVIATION = [node("Sqrt", ["variance"], ["deviation"])]
BOTH = [*DEVIATION, node("Concat", ["mean", "deviation"], ["y"], axis=-1)]
CLIPPED = [
    node("Add", ["variance", "tiny"], ["more"]),
    node("Mul", ["more", "half"], ["less"]),
    node("Relu", ["less"], ["positive"]),
    node("Sqrt", ["positive"], ["y"]),
]
"""A small number is added: PyTorch's own code of ECAPA and of x-vectors."""


def model(nodes: list[NodeProto], shape: tuple[int | str, ...] = ("N", "T", WIDTH)) -> qglow.Model:
    return qglow.load_model(tiny_model(nodes, {"x": shape}, ["y"], CONSTANTS, opset=17).SerializeToString())


def tokens(batch: int, length: int) -> dict[str, Array]:
    random = np.random.default_rng(batch * 100 + length)
    return {"x": random.normal(size=(batch, length, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize("bounds", [BOUNDS, {"N": 1, "T": 16}], ids=["batch", "one"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("behind", [BOTH, CLIPPED], ids=["both", "clipped"])
def test_mean_and_deviation_of_any_length(
    behind: list[NodeProto], keepdims: int, bounds: dict[str, int], tmp_path: Path
) -> None:
    """The deviation of one token is NaN, as it is in every program."""
    nodes = statistics(keepdims, *behind)
    source, made = model(nodes), tiny_model(nodes, {"x": ("N", "T", WIDTH)}, ["y"], CONSTANTS, opset=17)
    program, own, known = source.compile(bounds=bounds), source.compile(), session(save(made, tmp_path))
    for batch, length in SIZES:
        if batch <= bounds["N"]:
            given = tokens(batch, length)
            found = program(given)
            assert same(found, own(given)), (batch, length)
            np.testing.assert_allclose(found["y"], known.run(None, given)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_every_instruction_set_has_the_bits_of_its_own(isa: str) -> None:
    source = model(statistics(0, *CLIPPED))
    program, own = source.compile(bounds=BOUNDS, isa=isa), source.compile(isa=isa)
    for batch, length in ((8, 16), (3, 5), (1, 1)):
        assert same(program(tokens(batch, length)), own(tokens(batch, length))), (batch, length)


def test_numbers_of_an_image_that_follow_from_its_height() -> None:
    """Factors of images are those of channels, in front of pixels."""
    nodes = [
        node("ReduceMax", ["x"], ["largest"], axes=[2], keepdims=1),
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "two"], ["t"]),
        node("Cast", ["t"], ["n"], to=TensorProto.FLOAT),
        node("Mul", ["largest", "n"], ["more"]),
        node("Div", ["more", "three"], ["part"]),
        node("Sub", ["part", "one"], ["y"]),
    ]
    constants = CONSTANTS | {"two": np.array(2), "three": np.array(3, np.float32)}
    made = tiny_model(nodes, {"x": ("N", 4, "T", 6)}, ["y"], constants, opset=17)
    source = qglow.load_model(made.SerializeToString())
    program, own = source.compile(bounds=BOUNDS), source.compile()
    for batch, length in SIZES:
        x = np.random.default_rng(length).normal(size=(batch, 4, length, 6)).astype(np.float32)
        assert same(program({"x": x}), own({"x": x})), (batch, length)


def test_factors_that_became_weights_are_refused_by_the_name_of_a_tensor() -> None:
    nodes = [
        node("ReduceMax", ["x"], ["largest"], axes=[1], keepdims=0),
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "place"], ["t"]),
        node("Cast", ["t"], ["n"], to=TensorProto.FLOAT),
        node("MatMul", ["largest", "w"], ["h"], name="product"),
        node("Mul", ["h", "n"], ["y"], name="times_n"),
    ]
    with pytest.raises(UnsupportedError, match="node 'product' .*computes 'y', cannot have a run-time size"):
        model(nodes).compile(bounds=BOUNDS)


def test_the_same_of_summands_that_sizes_decide() -> None:
    nodes = [
        node("ReduceMax", ["x"], ["largest"], axes=[1], keepdims=0),
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "place"], ["t"]),
        node("Cast", ["t"], ["n"], to=TensorProto.FLOAT),
        node("Sub", ["largest", "n"], ["less"]),
        node("Mul", ["less", "half"], ["y"], name="times_half"),
    ]
    with pytest.raises(UnsupportedError, match="computes 'y', cannot have a run-time size"):
        model(nodes).compile(bounds=BOUNDS)
