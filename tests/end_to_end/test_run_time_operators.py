"""Operators of which a size is only known at run time: the bits of programs for each size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.toolchain.shape_constants import ShapeConstants
from tests.end_to_end.bits import same
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, tiny_model

node = helper.make_node
BLOCKS = {"domain": "com.microsoft", "block_size": 16, "quantize_axis": 1, "gather_axis": 0, "bits": 4}


def test_parts_that_begin_at_a_size_are_found(tmp_path: Path) -> None:
    # The last two places, all but the first, and the first half of a concatenation.
    nodes = [
        node("Slice", ["x", "minus_two", "most", "axis"], ["two"]),
        node("Slice", ["x", "one", "most", "axis"], ["rest"]),
        node("Concat", ["x", "start", "x"], ["twice"], axis=1),
    ]
    constants = {
        "minus_two": np.array([-2]),
        "one": np.array([1]),
        "most": np.array([10**6]),
        "axis": np.array([1]),
        "start": np.ones((1, 3, 4), np.float32),
    }
    outputs = ["two", "rest", "twice"]
    model = qglow.load_model(save(tiny_model(nodes, {"x": (1, "T", 4)}, outputs, constants), tmp_path))
    bounded, own = model.compile(bounds={"T": 16}), model.compile()
    for count in (2, 9, 16):
        inputs = {"x": np.random.default_rng(count).normal(size=(1, count, 4)).astype(np.float32)}
        assert same(bounded(inputs), own(inputs)), count


def test_a_table_is_cut_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distances to the last token are the last places of a table (ALiBi, as MPT has it)."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["count"], axis=0),
        node("Neg", ["count"], ["start"]),
        node("Slice", ["table", "start", "most", "one"], ["distances"]),
        node("Add", ["x", "distances"], ["y"]),
    ]
    table = np.arange(-31, 1, dtype=np.float32).reshape(1, 32, 1)
    constants = {"one": np.array([1]), "most": np.array([10**6]), "table": table}
    model = qglow.load_model(save(tiny_model(nodes, {"x": (1, "T", 4)}, ["y"], constants), tmp_path))
    bounded = model.compile(bounds={"T": 16})

    def refuse(*arguments: object) -> None:
        raise AssertionError("a call imports the constants of its size")

    monkeypatch.setattr(ShapeConstants, "imported", refuse)
    for count in (1, 9, 16):
        x = np.random.default_rng(count).normal(size=(1, count, 4)).astype(np.float32)
        assert bounded({"x": x})["y"].tobytes() == (x + table[:, -count:]).tobytes(), count


MADE = np.random.default_rng(8)
TABLE, VECTOR = MADE.normal(size=(32, 8)).astype(np.float32), MADE.normal(size=8).astype(np.float32)
CODES = MADE.integers(0, 256, (32, 4)).astype(np.uint8)
POSITIONS: Mapping[str, tuple[list[NodeProto], Mapping[str, Array]]] = {
    "within an operator": (
        [
            node("Cast", ["x"], ["ids"], to=TensorProto.INT32),
            node(
                "EmbedLayerNormalization",
                ["ids", "", "table", "table", "", "vector", "vector"],
                ["y", "counts"],
                domain="com.microsoft",
            ),
        ],
        {"table": TABLE, "vector": VECTOR},
    ),
    "in blocks of four bits": (
        [
            node("Shape", ["x"], ["shape"], start=1, end=2),
            node("Squeeze", ["shape"], ["count"]),
            node("Range", ["zero", "count", "one"], ["places"]),
            node("GatherBlockQuantized", ["codes", "places", "scales"], ["rows"], **BLOCKS),
            node("Unsqueeze", ["x", "two"], ["apart"]),
            node("Add", ["apart", "rows"], ["y"]),
        ],
        {
            **{"zero": np.array(0), "one": np.array(1), "two": np.array([2])},
            **{"codes": CODES, "scales": np.abs(TABLE[:, :1])},
        },
    ),
    "in bytes": (
        [
            node("Shape", ["x"], ["shape"], start=1, end=2),
            node("Squeeze", ["shape"], ["count"]),
            node("Range", ["zero", "count", "one"], ["places"]),
            node("Gather", ["codes", "places"], ["bytes"]),
            node("DequantizeLinear", ["bytes", "scale", "middle"], ["rows"]),
            node("Unsqueeze", ["x", "two"], ["apart"]),
            node("Add", ["apart", "rows"], ["y"]),
        ],
        {
            **{"zero": np.array(0), "one": np.array(1), "two": np.array([2]), "codes": CODES},
            **{"scale": np.array(0.1, np.float32), "middle": np.array(120, np.uint8)},
        },
    ),
    "in 16 bits": (
        [
            node("Shape", ["x"], ["shape"], start=1, end=2),
            node("Slice", ["halves", "first", "shape"], ["stored"]),
            node("Mul", ["stored", "third"], ["rows"]),
            node("Cast", ["x"], ["halved"], to=TensorProto.FLOAT16),
            node("Unsqueeze", ["halved", "two"], ["apart"]),
            node("Add", ["apart", "rows"], ["sum"]),
            node("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
        ],
        {
            **{"first": np.array([0]), "two": np.array([2])},
            **{"halves": TABLE.astype(np.float16), "third": np.array(1 / 3, np.float16)},
        },
    ),
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_rows_of_positions_are_those_of_each_size(kind: str, tmp_path: Path) -> None:
    """Tables of positions as onnxruntime's tools store them, of which a call gets its first rows."""
    nodes, constants = POSITIONS[kind]
    made = tiny_model(nodes, {"x": (1, "T")}, ["y"], constants, opset=17)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    model = qglow.load_model(save(made, tmp_path))
    bounded, own = model.compile(bounds={"T": 16}), model.compile()
    for count in (1, 9, 16):
        x = np.random.default_rng(count).integers(0, 32, (1, count)).astype(np.float32)
        assert same(bounded({"x": x}), own({"x": x})), count


def test_computed_places_along_a_size(tmp_path: Path) -> None:
    """Rows of a table at the positions of tokens, as GPT-J gathers them: element by element."""
    nodes = [
        node("Unsqueeze", ["positions", "last"], ["one"]),
        node("Expand", ["one", "shape"], ["each"]),
        node("GatherElements", ["table", "each"], ["y"], axis=1),
        node("GatherND", ["flat", "one"], ["z"]),
    ]
    table = np.random.default_rng(0).normal(size=(1, 32, 4)).astype(np.float32)
    constants = {"last": np.array([-1]), "shape": np.array([1, 1, 4]), "table": table, "flat": table[0]}
    made = tiny_model(nodes, {}, ["y", "z"], constants, opset=17)
    made.graph.input.append(helper.make_tensor_value_info("positions", TensorProto.INT64, [1, "T"]))
    bounded = qglow.load_model(save(made, tmp_path)).compile(bounds={"T": 16})
    for count in (1, 9, 16):
        places = np.random.default_rng(count).integers(-32, 32, (1, count))
        found = bounded({"positions": places})
        assert all(found[name].tobytes() == table[0][places].tobytes() for name in ("y", "z")), count


def test_best_classes_of_each_token_and_best_tokens(tmp_path: Path) -> None:
    """Ranking beside a size and along it: labels of tokens, and where a text ends (CLIP's pooling)."""
    nodes = [
        node("ArgMax", ["x"], ["label"], axis=2, keepdims=0),
        node("TopK", ["x", "two"], ["best", "classes"], axis=-1),
        node("ArgMax", ["ids"], ["end"], axis=1, keepdims=0),
        node("ArgMin", ["x"], ["least"], axis=1, keepdims=1),
        node("ReduceMax", ["ids"], ["largest"], axes=[1], keepdims=0),
    ]
    outputs = ["label", "best", "classes", "end", "least", "largest"]
    made = tiny_model(nodes, {"x": (1, "T", 5)}, outputs, {"two": np.array([2])}, opset=17)
    made.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "T"]))
    model = qglow.load_model(save(made, tmp_path))
    bounded, own = model.compile(bounds={"T": 16}), model.compile()
    for count in (1, 9, 16):
        random = np.random.default_rng(count)
        x = random.normal(size=(1, count, 5)).astype(np.float32) + 3
        inputs = {"x": x, "ids": random.integers(-9, -5, (1, count))}
        assert same(bounded(inputs), own(inputs)), count


def test_rows_of_a_table_at_positions_are_summed(tmp_path: Path) -> None:
    """Positions behind the live ones are 0, but what stands there in the table is not."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["count"], axis=0),
        node("Range", ["zero", "count", "one"], ["row"]),
        node("Unsqueeze", ["row", "first"], ["positions"]),
        node("Gather", ["w", "positions"], ["embedded"], axis=0),
        node("ReduceSum", ["embedded", "ones"], ["y"], keepdims=0),
        node("Expand", ["positions", "two"], ["both"]),
        node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        node("GatherElements", ["turned", "both"], ["z_rows"], axis=1),
        node("ReduceSum", ["z_rows", "ones"], ["z"], keepdims=0),
    ]
    table = np.random.default_rng(0).normal(size=(32, 2)).astype(np.float32)
    constants = {"one": np.array(1), "zero": np.array(0), "ones": np.array([1]), "first": np.array([0])}
    constants["two"] = np.array([2, 1])
    made = tiny_model(nodes, {"x": (1, "T", 4), "w": (32, 2)}, ["y", "z"], constants, opset=17)
    model = qglow.load_model(save(made, tmp_path))
    bounded, own = model.compile(bounds={"T": 16}), model.compile()
    for count in (1, 9, 16):
        inputs = {"x": np.zeros((1, count, 4), np.float32), "w": table}
        assert same(bounded(inputs), own(inputs)), count


def test_an_output_that_sizes_alone_decide_is_named(tmp_path: Path) -> None:
    nodes = [node("Shape", ["x"], ["shape"]), node("Relu", ["x"], ["y"]), node("Identity", ["c"], ["same"])]
    constants = {"c": np.ones(3, np.float32)}
    made = tiny_model(nodes, {"x": (1, "T", 4)}, ["y", "same"], constants)
    bounded = qglow.load_model(save(made, tmp_path)).compile(bounds={"T": 16})
    x = np.ones((1, 9, 4), np.float32)
    assert bounded({"x": x})["same"].tolist() == [1, 1, 1]
    made = tiny_model(nodes, {"x": (1, "T", 4)}, ["y", "shape"], constants)
    with pytest.raises(UnsupportedError, match="output 'shape' depends on sizes alone"):
        qglow.load_model(save(made, tmp_path)).compile(bounds={"T": 16})


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("kind", ["float", "int8"])
def test_convolutions_along_a_size_that_stays(kind: str, isa: str, tmp_path: Path) -> None:
    """Projections of tokens in groups (SqueezeBERT), and windows over steps, padded to as many."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["projected"], group=4),
        node("Conv", ["projected", "w1", "b0"], ["seen"], pads=[1, 1]),
        node("Relu", ["seen"], ["positive"]),
        node("Conv", ["positive", "w2"], ["each"], group=8, pads=[4, 4], dilations=[2]),
        node("Conv", ["each", "w3"], ["y"], pads=[0, 2]),
    ]
    shapes = {"w0": (8, 2, 1), "b0": (8,), "w1": (8, 8, 3), "w2": (8, 1, 5), "w3": (3, 8, 3)}
    random = np.random.default_rng(0)
    weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    loaded = qglow.load_model(save(tiny_model(nodes, {"x": ("N", 8, "T")}, ["y"], weights), tmp_path))
    model: qglow.Model | qglow.QuantizedModel = loaded
    if kind == "int8":
        data = [{"x": random.normal(size=(1, 8, 13)).astype(np.float32)} for _ in range(8)]
        model = loaded.quantize(loaded.profile(data), repair=False, check=False)
    bounded, own = model.compile(bounds={"N": 8, "T": 24}, isa=isa), model.compile(isa=isa)
    for images, count in ((1, 1), (3, 13), (8, 24)):
        inputs = {"x": random.normal(size=(images, 8, count)).astype(np.float32)}
        assert same(bounded(inputs), own(inputs)), (images, count)


@pytest.mark.parametrize("kind", ["float", "int8"])
@pytest.mark.parametrize("batch", [1, 8])
def test_tokens_are_shifted_by_one(batch: int, kind: str, tmp_path: Path) -> None:
    """Neighbours of each token, zeros beyond the ends, as MobileBERT joins them, and a longer border.

    Borders of sentences that are not there count in no sum over the batch.
    """
    nodes = [
        node("Relu", ["x"], ["each"]),
        node("Slice", ["each", "one", "most", "one"], ["rest"]),
        node("Pad", ["rest", "behind"], ["next"]),
        node("Slice", ["each", "zero", "but_one", "one"], ["first"]),
        node("Pad", ["first", "before"], ["last"]),
        node("Concat", ["next", "each", "last"], ["joined"], axis=2),
        node("MatMul", ["joined", "w"], ["y"]),
        node("Pad", ["x", "around", "value"], ["wide"]),
        node("ReduceSum", ["wide", "one"], ["z"], keepdims=0),
        node("ReduceSum", ["wide", "zero"], ["all"], keepdims=1),
        node("Sub", ["wide", "all"], ["less"]),
        node("ReduceSum", ["next", "zero"], ["nexts"], keepdims=1),
    ]
    outputs = ["y", "z", "less", "nexts"]
    constants = {"one": np.array([1]), "zero": np.array([0]), "most": np.array([10**6])}
    constants |= {"but_one": np.array([-1]), "behind": np.array([0, 0, 0, 0, 1, 0])}
    constants |= {"before": np.array([0, 1, 0, 0, 0, 0]), "around": np.array([0, 2, 0, 0, 3, 0])}
    random = np.random.default_rng(0)
    weights = {"w": random.normal(size=(12, 5)).astype(np.float32), "value": np.array(0.5, np.float32)}
    made = tiny_model(nodes, {"x": ("N", "T", 4)}, outputs, constants | weights, opset=17)
    loaded = qglow.load_model(save(made, tmp_path))
    model: qglow.Model | qglow.QuantizedModel = loaded
    if kind == "int8":
        data = [{"x": random.normal(size=(1, 13, 4)).astype(np.float32)} for _ in range(8)]
        model = loaded.quantize(loaded.profile(data), repair=False, check=False)
    bounded, own = model.compile(bounds={"N": batch, "T": 16}), model.compile()
    for images, count in ((8, 16), (1, 1), (3, 9), (8, 1), (2, 16), (5, 2), (1, 15)):
        inputs = {"x": random.normal(size=(min(images, batch), count, 4)).astype(np.float32)}
        assert same(bounded(inputs), own(inputs)), (images, count)


def test_slices_without_elements(tmp_path: Path) -> None:
    """What a rotary embedding of the whole head passes on, alone and joined (Phi-3)."""
    nodes = [
        node("Slice", ["x", "four", "most", "axis"], ["rest"]),
        node("Relu", ["x"], ["turned"]),
        node("Concat", ["turned", "rest"], ["y"], axis=-1),
        node("Neg", ["rest"], ["nothing"]),
    ]
    constants = {"four": np.array([4]), "most": np.array([10**6]), "axis": np.array([2])}
    made = tiny_model(nodes, {"x": (1, "T", 4)}, ["y", "nothing"], constants)
    bounded = qglow.load_model(save(made, tmp_path)).compile(bounds={"T": 16})
    for count in (1, 9, 16):
        x = np.random.default_rng(count).normal(size=(1, count, 4)).astype(np.float32)
        found = bounded({"x": x})
        assert found["nothing"].shape == (1, count, 0)
        assert found["y"].tobytes() == np.maximum(x, 0).tobytes()


@pytest.mark.parametrize("mask", ["1 - mask", "(1 - mask) * -10000", "mask / 4 + 1"])
def test_arithmetic_of_a_mask_of_tokens_with_numbers(mask: str, tmp_path: Path) -> None:
    """Passes make a factor and a summand a channel of it, as many as there are tokens."""
    steps = {
        "1 - mask": [node("Sub", ["one", "real"], ["y"])],
        "(1 - mask) * -10000": [node("Sub", ["one", "real"], ["s"]), node("Mul", ["s", "far"], ["y"])],
        "mask / 4 + 1": [node("Div", ["real", "four"], ["s"]), node("Add", ["s", "one"], ["y"])],
    }
    nodes = [node("Cast", ["mask"], ["real"], to=TensorProto.FLOAT), *steps[mask]]
    constants = {"one": np.float32(1), "far": np.float32(-10000), "four": np.float32(4)}
    made = tiny_model(nodes, {}, ["y"], constants)
    made.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["N", "T"]))
    model = qglow.load_model(save(made, tmp_path))
    bounded, own = model.compile(bounds={"N": 8, "T": 16}), model.compile()
    for shape in ((1, 1), (3, 9), (8, 16)):
        inputs = {"mask": np.random.default_rng(0).integers(0, 2, shape)}
        assert same(bounded(inputs), own(inputs)), shape
