"""Gathers whose places follow from sizes, in batches of sentences of any length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import qglow
from qglow.core.types import Array
from tests.unit.importer.tiny import session, tiny_model

node = helper.make_node
BOUNDS = {"N": 8, "T": 16}
SIZES = ((8, 16), (3, 5), (1, 9), (2, 1), (7, 16))
NUMBERS = {
    "zero": np.array(0),
    "one": np.array(1),
    "two": np.array(2),
    "last": np.array([-1]),
    "low": np.array(-1e4, np.float32),
    "rows": np.array([-1, 6]),
}


def sizes(x: str) -> list[NodeProto]:
    """Nodes that compute the sizes N and T of the first axes, and all numbers below N."""
    return [
        node("Shape", [x], ["sizes"]),
        node("Gather", ["sizes", "zero"], ["n"]),
        node("Gather", ["sizes", "one"], ["t"]),
        node("Range", ["zero", "n", "one"], ["every"]),
    ]


MASK = [
    *sizes("mask"),
    node("Cast", ["mask"], ["seen"], to=TensorProto.BOOL),
    node("Range", ["zero", "t", "one"], ["each"]),
    node("Reshape", ["every", "column"], ["sentence"]),
    node("Mul", ["sentence", "t"], ["first"]),
    node("Add", ["each", "first"], ["place"]),
    node("Flatten", ["seen"], ["flat"], axis=2),
    node("Gather", ["flat", "place"], ["found"], axis=0),
    node("Squeeze", ["found", "last"], ["shown"]),
    node("Where", ["shown", "x", "low"], ["scores"]),
    node("Softmax", ["scores"], ["y"], axis=-1),
]
"""Nodes that TorchScript's exporter writes for `mask[b, k]`: elements of the flattened mask at b * T + k."""
LAST = [
    *sizes("x"),
    node("ReduceMax", ["x"], ["largest"], axes=[2], keepdims=0),
    node("ArgMax", ["largest"], ["at"], axis=1, keepdims=0),
]
BY_TUPLES = [
    *LAST,
    node("Unsqueeze", ["every", "last"], ["firsts"]),
    node("Unsqueeze", ["at", "last"], ["seconds"]),
    node("Concat", ["firsts", "seconds"], ["tuples"], axis=-1),
    node("GatherND", ["x", "tuples"], ["y"]),
]
BY_ROWS = [
    *LAST,
    node("Mul", ["every", "t"], ["starts"]),
    node("Add", ["at", "starts"], ["place"]),
    node("Reshape", ["x", "rows"], ["r"]),
    node("Gather", ["r", "place"], ["y"], axis=0),
]
"""One token of each sentence, where data decide which, as CLIP takes it."""
SEEN = [
    *sizes("x"),
    node("ReduceSum", ["x", "last"], ["counts"], keepdims=0),
    node("Cast", ["counts"], ["lengths"], to=TensorProto.INT64),
    node("Sub", ["lengths", "one"], ["ends"]),
    node("Unsqueeze", ["every", "last"], ["firsts"]),
    node("Unsqueeze", ["ends", "last"], ["seconds"]),
    node("Concat", ["firsts", "seconds"], ["tuples"], axis=-1),
    node(
        "ConstantOfShape",
        ["sizes"],
        ["nothing"],
        value=helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
    ),
    node("Shape", ["ends"], ["batch"]),
    node("Expand", ["one", "batch"], ["ones"]),
    node("ScatterND", ["nothing", "tuples", "ones"], ["marked"]),
    node("CumSum", ["marked", "one"], ["seen"], reverse=1),
    node("Cast", ["seen"], ["y"], to=TensorProto.FLOAT),
]
"""The mask of frames as wav2vec 2.0 makes it: ones up to the place `length - 1` of each row."""
HEAD = np.random.default_rng(5).normal(size=(6, 6)).astype(np.float32)


def model(nodes: list[NodeProto], inputs: dict[str, tuple[int | str, ...]]) -> qglow.Model:
    numbers = {**NUMBERS, "column": np.array([-1, 1, 1, 1])}
    made = tiny_model(nodes, inputs, ["y"], numbers, opset=17)
    for value in made.graph.input:
        if value.name == "mask":
            value.type.tensor_type.elem_type = TensorProto.INT64
    return qglow.load_model(made.SerializeToString())


def test_a_padding_mask_is_read_element_by_element() -> None:
    """Both numbers are bounded, and the tokens of a sentence are its own."""
    source = model(MASK, {"x": ("N", 1, 1, "T"), "mask": ("N", "T")})
    program, random = source.compile(bounds=BOUNDS), np.random.default_rng(0)
    for batch, count in SIZES:
        mask = (random.random((batch, count)) < 0.6).astype(np.int64)
        mask[:, 0] = 1
        given = {"x": random.normal(size=(batch, 1, 1, count)).astype(np.float32), "mask": mask}
        scores = np.where(mask[:, None, None].astype(bool), given["x"], np.float32(-1e4))
        wanted = np.exp(scores - scores.max(-1, keepdims=True))
        wanted /= wanted.sum(-1, keepdims=True)
        np.testing.assert_allclose(program(given)["y"], wanted, rtol=1e-5, atol=1e-7)
        assert program(given)["y"].tobytes() == source.compile()(given)["y"].tobytes()


@pytest.mark.parametrize("nodes", [BY_TUPLES, BY_ROWS], ids=["tuples", "rows"])
@pytest.mark.parametrize("bounds", [BOUNDS, {"N": 1, "T": 16}])
def test_one_token_of_each_sentence(nodes: list[NodeProto], bounds: dict[str, int]) -> None:
    program = model(nodes, {"x": ("N", "T", 6)}).compile(bounds=bounds)
    for batch, count in SIZES:
        if batch <= bounds["N"]:
            x = np.random.default_rng(batch).normal(size=(batch, count, 6)).astype(np.float32)
            wanted = x[np.arange(batch), x.max(2).argmax(1)]
            np.testing.assert_array_equal(program({"x": x})["y"], wanted)


@pytest.mark.parametrize("nodes", [BY_TUPLES, BY_ROWS], ids=["tuples", "rows"])
@pytest.mark.parametrize("bounds", [BOUNDS, {"N": 1, "T": 16}])
def test_scores_of_one_token_of_each_sentence(nodes: list[NodeProto], bounds: dict[str, int]) -> None:
    """Classifiers of decoders score all tokens and take one of them."""
    scored = [node("MatMul", ["x", "head"], ["s"]), node("Relu", ["s"], ["scores"])]
    for each in nodes:
        scored.append(NodeProto.FromString(each.SerializeToString()))
        if each.op_type in ("GatherND", "Reshape") and each.input[0] == "x":
            scored[-1].input[0] = "scores"
    made = tiny_model(scored, {"x": ("N", "T", 6)}, ["y"], {**NUMBERS, "head": HEAD}, opset=17)
    source = qglow.load_model(made.SerializeToString())
    program = source.compile(bounds=bounds)
    for batch, count in SIZES:
        if batch <= bounds["N"]:
            x = np.random.default_rng(batch).normal(size=(batch, count, 6)).astype(np.float32)
            wanted = np.maximum(x[np.arange(batch), x.max(2).argmax(1)] @ HEAD, 0)
            np.testing.assert_allclose(program({"x": x})["y"], wanted, rtol=1e-5, atol=1e-6)
            assert program({"x": x})["y"].tobytes() == source.compile()({"x": x})["y"].tobytes()


@pytest.mark.parametrize("bounds", [BOUNDS, {"N": 1, "T": 16}])
def test_ones_up_to_the_last_place_of_each_row(bounds: dict[str, int]) -> None:
    source = model(SEEN, {"x": ("N", "T")})
    assert not any("onnxruntime" in note for note in source.bound)
    program = source.compile(bounds=bounds)
    for batch, count in SIZES:
        if batch <= bounds["N"]:
            lengths = np.random.default_rng(batch).integers(1, count + 1, (batch, 1))
            wanted = (np.arange(count) < lengths).astype(np.float32)
            np.testing.assert_array_equal(program({"x": wanted})["y"], wanted)


def test_updates_of_as_many_places_as_a_call_has() -> None:
    """New rows of a table, at places that an input names."""
    nodes = [node("Unsqueeze", ["at", "last"], ["tuples"]), node("ScatterND", ["x", "tuples", "u"], ["y"])]
    made = tiny_model(nodes, {"x": (12, 3), "u": ("T", 3), "at": ("T",)}, ["y"], NUMBERS, opset=17)
    made.graph.input[2].type.tensor_type.elem_type = TensorProto.INT64
    source = qglow.load_model(made.SerializeToString())
    program, random = source.compile(bounds={"T": 16}), np.random.default_rng(9)
    for count in (16, 5, 1):
        x, u = (random.normal(size=(size, 3)).astype(np.float32) for size in (12, count))
        at = random.integers(-12, 12, count)
        wanted = x.copy()
        wanted[at] = u
        np.testing.assert_array_equal(program({"x": x, "u": u, "at": at})["y"], wanted)


def test_places_that_count_from_the_end_of_each_sentence() -> None:
    """An index of -1 is the last token of the call, not of the bound."""
    nodes = [
        *sizes("x"),
        node("Unsqueeze", ["every", "last"], ["firsts"]),
        node("Unsqueeze", ["at", "last"], ["seconds"]),
        node("Concat", ["firsts", "seconds"], ["tuples"], axis=-1),
        node("GatherND", ["x", "tuples"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": ("N", "T", 6), "at": ("N",)}, ["y"], NUMBERS, opset=17)
    made.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    program = qglow.load_model(made.SerializeToString()).compile(bounds=BOUNDS)
    for batch, count in SIZES:
        x = np.random.default_rng(batch).normal(size=(batch, count, 6)).astype(np.float32)
        at: Array = np.where(np.arange(batch) % 2, -1, count - 1)
        np.testing.assert_array_equal(program({"x": x, "at": at})["y"], x[:, -1])


def test_constants_of_a_signal_that_is_longer_than_its_window() -> None:
    """Sizes that are tried for constants begin where the window of the convolution fits."""
    weights = {"w": np.random.default_rng(0).normal(size=(4, 1, 10)).astype(np.float32)}
    nodes = [
        node("Conv", ["x", "w"], ["frames"], strides=[5]),
        node("Shape", ["frames"], ["sizes"]),
        node("Gather", ["sizes", "two"], ["t"]),
        node("Range", ["zero", "t", "one"], ["every"]),
        node("Cast", ["every"], ["angles"], to=TensorProto.FLOAT),
        node("Cos", ["angles"], ["factors"]),
        node("Mul", ["frames", "factors"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": (1, 1, "samples")}, ["y"], weights | NUMBERS, opset=17)
    source = qglow.load_model(made.SerializeToString())
    program, own = source.compile(bounds={"samples": 400}), source.compile()
    for samples in (10, 57, 399, 400):
        x = np.random.default_rng(samples).normal(size=(1, 1, samples)).astype(np.float32)
        assert program({"x": x})["y"].tobytes() == own({"x": x})["y"].tobytes(), samples


def test_what_else_reads_the_places_of_rows_gets_those_of_the_call() -> None:
    """Places that are an output too count rows as the call has them, not as the bound does."""
    nodes = [*BY_ROWS, node("Identity", ["place"], ["places"])]
    made = tiny_model(nodes, {"x": ("N", "T", 6)}, ["y", "places"], NUMBERS, opset=17)
    made.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    program = qglow.load_model(made.SerializeToString()).compile(bounds=BOUNDS)
    for batch, count in SIZES:
        x = np.random.default_rng(batch).normal(size=(batch, count, 6)).astype(np.float32)
        found, at = program({"x": x}), x.max(2).argmax(1)
        np.testing.assert_array_equal(found["y"], x[np.arange(batch), at])
        np.testing.assert_array_equal(found["places"], np.arange(batch) * count + at)


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
def test_computed_places_before_the_first_count_from_the_end(kind: int) -> None:
    """Places from -T on are those of the call, not of the bound."""
    nodes = [
        *LAST,
        node("Neg", ["t"], ["before"]),
        node("Add", ["at", "before"], ["wide"]),
        node("Cast", ["wide"], ["place"], to=kind),
        node("Gather", ["x", "place"], ["y"], axis=1),
    ]
    program = model(nodes, {"x": (1, "T", 6)}).compile(bounds={"T": 16})
    for count in (16, 1, 5, 2, 15):
        x = np.random.default_rng(count).normal(size=(1, count, 6)).astype(np.float32)
        np.testing.assert_array_equal(program({"x": x})["y"], x[:, x.max(2).argmax(1)])


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_places_that_are_negative_for_small_sizes_alone(offset: int) -> None:
    """The place T - 5 counts from the end below five places; `offset` is added by data."""
    nodes = [
        *sizes("x"),
        node("Sub", ["t", "five"], ["place"]),
        node("Add", ["place", "more"], ["moved"]),
        node("Gather", ["x", "moved" if offset else "place"], ["y"], axis=1),
    ]
    numbers = {**NUMBERS, "five": np.array(5)}
    made = tiny_model(nodes, {"x": (1, "T", 6), "more": (1,)}, ["y"], numbers, opset=17)
    made.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    program = qglow.load_model(made.SerializeToString()).compile(bounds={"T": 16})
    for count in (16, 4, 5, 3, 8):
        x = np.random.default_rng(count).normal(size=(1, count, 6)).astype(np.float32)
        got = program({"x": x, "more": np.array([offset])})["y"]
        np.testing.assert_array_equal(got.reshape(1, 6), x[:, count - 5 + offset], f"{count}")


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
def test_rows_before_the_first_count_from_the_last_of_the_call(kind: int) -> None:
    """Each sentence takes a token of the one before it, and the first one of the last."""
    nodes = [
        *LAST,
        node("Neg", ["t"], ["before"]),
        node("Add", ["at", "before"], ["moved"]),
        node("Mul", ["every", "t"], ["starts"]),
        node("Add", ["moved", "starts"], ["wide"]),
        node("Cast", ["wide"], ["place"], to=kind),
        node("Reshape", ["x", "rows"], ["r"]),
        node("Gather", ["r", "place"], ["y"], axis=0),
    ]
    program = model(nodes, {"x": ("N", "T", 6)}).compile(bounds=BOUNDS)
    for batch, count in SIZES:
        x = np.random.default_rng(batch).normal(size=(batch, count, 6)).astype(np.float32)
        wanted = x[np.arange(batch) - 1, x.max(2).argmax(1)]
        np.testing.assert_array_equal(program({"x": x})["y"], wanted)


def test_constant_places_of_rows() -> None:
    """Row 3 is the second token of the second sentence of two tokens."""
    numbers = {**NUMBERS, "some": np.array([3, 0, -1])}
    nodes = [node("Reshape", ["x", "rows"], ["r"]), node("Gather", ["r", "some"], ["y"], axis=0)]
    made = tiny_model(nodes, {"x": ("N", "T", 6)}, ["y"], numbers, opset=17)
    program = qglow.load_model(made.SerializeToString()).compile(bounds=BOUNDS)
    for batch, count in ((2, 2), (8, 16), (1, 4), (3, 7)):
        x = np.random.default_rng(batch).normal(size=(batch, count, 6)).astype(np.float32)
        np.testing.assert_array_equal(program({"x": x})["y"], x.reshape(-1, 6)[[3, 0, -1]])


@pytest.mark.parametrize("twice", [False, True])
def test_long_sums_of_places_are_followed_once(twice: bool) -> None:
    """A thousand sums, each of the one before it, or of that twice."""
    steps = [node("Add", [f"p{i}", f"p{i}" if twice else "zero"], [f"p{i + 1}"]) for i in range(1000)]
    nodes = [
        *LAST,
        node("Mul", ["at", "zero"], ["p0"]),
        *steps,
        node("Gather", ["x", "p1000"], ["y"], axis=1),
    ]
    program = model(nodes, {"x": (1, "T", 6)}).compile(bounds={"T": 16})
    x = np.random.default_rng(0).normal(size=(1, 5, 6)).astype(np.float32)
    np.testing.assert_array_equal(program({"x": x})["y"], x[:, :1])


def test_chosen_rows_are_of_any_size() -> None:
    """PyTorch's exporter writes `x[[-2]]` along an axis that it turns to the front."""
    nodes = [
        node("Transpose", ["x"], ["turned"], perm=[2, 0, 1]),
        node("GatherND", ["turned", "chosen"], ["y"]),
    ]
    made = tiny_model(nodes, {"x": ("N", "T", 6)}, ["y"], {"chosen": np.array([[-2], [1]])}, opset=17)
    program = qglow.load_model(made.SerializeToString()).compile(bounds=BOUNDS)
    random = np.random.default_rng(3)
    for batch, count in SIZES:
        x = random.normal(size=(batch, count, 6)).astype(np.float32)
        assert np.array_equal(program({"x": x})["y"], x.transpose(2, 0, 1)[[-2, 1]])


def assigned(nodes: list[NodeProto], constants: dict[str, Array]) -> None:
    """Assert that nodes compute `x[..., [0, 1, 5]] = z` in any size."""
    inputs: dict[str, tuple[int | str, ...]] = {"x": ("N", "T", 6), "z": ("N", "T", 3)}
    made = tiny_model(nodes, inputs, ["y"], {**NUMBERS, **constants}, opset=17)
    program = qglow.load_model(made.SerializeToString()).compile(bounds=BOUNDS)
    random = np.random.default_rng(4)
    for batch, count in SIZES:
        given = {
            name: random.normal(size=(batch, count, width)).astype(np.float32)
            for name, width in (("x", 6), ("z", 3))
        }
        wanted = given["x"].copy()
        wanted[..., [0, 1, 5]] = given["z"]
        assert np.array_equal(program(given)["y"], wanted)


def test_replaced_rows_are_of_any_size() -> None:
    """PyTorch's exporter turns the axis of an assignment to the front."""
    nodes = [
        node("Transpose", ["x"], ["turned"], perm=[2, 0, 1]),
        node("Transpose", ["z"], ["new"], perm=[2, 0, 1]),
        node("ScatterND", ["turned", "chosen", "new"], ["all"]),
        node("Transpose", ["all"], ["y"], perm=[1, 2, 0]),
    ]
    assigned(nodes, {"chosen": np.array([[0], [1], [-1]])})


def test_replaced_columns_are_of_any_size() -> None:
    """TorchScript's exporter writes the position of every element of an assignment."""
    nodes = [
        *sizes("x"),
        node("Range", ["zero", "t", "one"], ["each"]),
        node("Shape", ["z"], ["extent"]),
        node("Reshape", ["every", "firsts"], ["sentence"]),
        node("Reshape", ["each", "seconds"], ["token"]),
        *(node("Expand", [name, "extent"], [f"all_{name}"]) for name in ("sentence", "token", "column")),
        *(node("Unsqueeze", [f"all_{n}", "last"], [f"{n}_index"]) for n in ("sentence", "token", "column")),
        node("Concat", ["sentence_index", "token_index", "column_index"], ["chosen"], axis=-1),
        node("ScatterND", ["x", "chosen", "z"], ["y"]),
    ]
    shapes = {"firsts": np.array([-1, 1, 1]), "seconds": np.array([1, -1, 1])}
    assigned(nodes, {**shapes, "column": np.array([[[0, 1, 5]]])})


WRITTEN = {
    "elements": [
        node("Expand", ["two", "new"], ["i"]),
        node("ScatterElements", ["x", "i", "u"], ["y"], axis=1),
    ],
    "tuples": [
        node("Range", ["zero", "n", "one"], ["every"]),
        node("Unsqueeze", ["every", "last"], ["firsts"]),
        node("Shape", ["firsts"], ["column"]),
        node("Expand", ["two", "column"], ["seconds"]),
        node("Concat", ["firsts", "seconds"], ["pairs"], axis=-1),
        node("Squeeze", ["u", "middle"], ["v"]),
        node("ScatterND", ["x", "pairs", "v"], ["y"]),
    ],
}
"""New values of one place of each row, as PyTorch's exporters write `x[:, 2] = u`."""


@pytest.mark.parametrize("form", WRITTEN)
def test_a_known_place_of_each_row_is_written_in_batches_of_any_size(form: str, tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Gather", ["sizes", "zero"], ["n"]),
        node("Shape", ["u"], ["new"]),
        *WRITTEN[form],
    ]
    numbers = {**NUMBERS, "middle": np.array([1])}
    made = tiny_model(nodes, {"x": ("N", 5, 3), "u": ("N", 1, 3)}, ["y"], numbers, opset=17)
    source = qglow.load_model(made.SerializeToString())
    program, random = source.compile(bounds={"N": 8}), np.random.default_rng(3)
    sets = [
        {name: random.normal(size=(count, size, 3)).astype(np.float32) for name, size in (("x", 5), ("u", 1))}
        for count in (8, 3, 1)
    ]
    quantized = source.quantize(source.profile(sets[0]))
    quantized.export_qdq(tmp_path / "open.onnx")
    for given in sets:
        wanted = given["x"].copy()
        wanted[:, 2] = given["u"][:, 0]
        np.testing.assert_array_equal(program(given)["y"], wanted)
        (found,) = session(tmp_path / "open.onnx").run(None, given)
        np.testing.assert_array_equal(found, quantized.compile()(given)["y"])
