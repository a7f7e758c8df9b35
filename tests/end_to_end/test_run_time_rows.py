"""Rows of tokens whose batch lies behind other axes: the bits of programs for each size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from tests.end_to_end.bits import same
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import tiny_model

node = helper.make_node
FRAMES, HEADS, WIDTH = 5, 4, 16
RANDOM = np.random.default_rng(3)
CONSTANTS = {
    "zero": np.array([0]),
    "first": np.array(0),
    "flat": np.array([-1]),
    "rows": np.array([-1, WIDTH]),
    "other_rows": np.array([-1, WIDTH // HEADS]),
    "heads": np.array([FRAMES, -1, WIDTH // HEADS]),
    "one_head": np.array([1, -1, WIDTH // HEADS]),
    "split": np.array([0, 0, HEADS, WIDTH // HEADS]),
    "frames": np.array([FRAMES, -1, WIDTH]),
    "query": np.array([1, -1, WIDTH]),
    "head_rows": np.array([-1, WIDTH // HEADS]),
    "probe": RANDOM.normal(size=(1, 1, WIDTH)).astype(np.float32),
    "gate": RANDOM.normal(size=(WIDTH // HEADS, 8)).astype(np.float32),
    **{f"w{n}": (RANDOM.normal(size=(WIDTH, WIDTH)) / 4).astype(np.float32) for n in "qkvo"},
}


def transpose(x: str, y: str, *perm: int) -> NodeProto:
    return node("Transpose", [x], [y], perm=perm)


def reshape(x: str, shape: str, y: str) -> NodeProto:
    return node("Reshape", [x, shape], [y], name=f"{y}_node")


POOLED = [
    node("Shape", ["x"], ["sizes"]),
    node("Slice", ["sizes", "zero", "one"], ["batch"]),
    node("Concat", ["batch", "one", "one"], ["times"], axis=0),
    node("Tile", ["probe", "times"], ["probes"]),
    transpose("probes", "asked", 1, 0, 2),
    transpose("x", "seen", 1, 0, 2),
    reshape("asked", "rows", "asked_rows"),
    reshape("seen", "rows", "seen_rows"),
    node("MatMul", ["asked_rows", "wq"], ["q_rows"]),
    node("MatMul", ["seen_rows", "wk"], ["k_rows"]),
    node("MatMul", ["seen_rows", "wv"], ["v_rows"]),
    reshape("q_rows", "one_head", "q_heads"),
    reshape("k_rows", "heads", "k_heads"),
    reshape("v_rows", "heads", "v_heads"),
    transpose("q_heads", "q", 1, 0, 2),
    transpose("k_heads", "k", 1, 2, 0),
    transpose("v_heads", "v", 1, 0, 2),
    node("MatMul", ["q", "k"], ["scores"]),
    node("Softmax", ["scores"], ["shares"], axis=-1),
    node("MatMul", ["shares", "v"], ["mixed"]),
    transpose("mixed", "turned", 1, 0, 2),
    reshape("turned", "rows", "mixed_rows"),
    node("MatMul", ["mixed_rows", "wo"], ["y_rows"]),
    reshape("y_rows", "query", "behind"),
    transpose("behind", "pooled", 1, 0, 2),
    node("Gather", ["pooled", "first"], ["y"], axis=1),
]
"""Attention of one learned query to all frames, which lie in front of the batch (SigLIP's pooling head)."""
FRAMES_FIRST = [
    transpose("x", "seen", 1, 0, 2),
    reshape("seen", "rows", "r"),
    node("MatMul", ["r", "wq"], ["q_rows"]),
    node("Softmax", ["q_rows"], ["shares"], axis=-1),
    node("Add", ["shares", "r"], ["sum"]),
    reshape("sum", "heads", "parts"),
    node("Softmax", ["parts"], ["part_shares"], axis=-1),
    reshape("part_shares", "rows", "again"),
    node("MatMul", ["again", "wk"], ["k_rows"]),
    reshape("k_rows", "frames", "k"),
    transpose("k", "tokens", 1, 0, 2),
    node("ReduceSum", ["tokens", "zero"], ["summed"]),
    node("Add", ["tokens", "summed"], ["y"]),
]
"""Rows of all frames of a batch, those of heads, and rows again; the sum is over the batch of a call."""
GATE = [
    reshape("x", "split", "parts"),
    transpose("parts", "per_head", 0, 2, 1, 3),
    reshape("per_head", "head_rows", "r"),
    node("MatMul", ["r", "gate"], ["gates"]),
    node("Shape", ["per_head"], ["sizes"]),
    node("Slice", ["sizes", "zero", "three"], ["outer"]),
    node("Concat", ["outer", "eight"], ["divided"], axis=0),
    reshape("gates", "divided", "divided_gates"),
    node("Softmax", ["divided_gates"], ["y"], axis=2),
]
"""Products of rows of every head, which lie in front of the tokens (WavLM's gate)."""
NUMBERS = {"one": np.array([1]), "three": np.array([3]), "eight": np.array([8])}


def model(nodes: list[NodeProto], x: tuple[int | str, ...] = ("N", FRAMES, WIDTH)) -> qglow.Model:
    made = tiny_model(nodes, {"x": x}, ["y"], CONSTANTS | NUMBERS, opset=17)
    return qglow.load_model(made.SerializeToString())


def tokens(batch: int, length: int = FRAMES) -> dict[str, Array]:
    random = np.random.default_rng(batch * 100 + length)
    return {"x": random.normal(size=(batch, length, WIDTH)).astype(np.float32)}


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize(
    ("nodes", "form"),
    [(POOLED, "float"), (FRAMES_FIRST, "float"), (FRAMES_FIRST, "int8")],
    ids=["pooled", "frames first", "frames first in int8"],
)
def test_rows_of_a_batch_behind_frames(nodes: list[NodeProto], form: str, isa: str) -> None:
    source: qglow.Model | qglow.QuantizedModel = model(nodes)
    if form == "int8":
        source = model(nodes).quantize(model(nodes).profile(tokens(8)), repair=False, check=False)
    program, own = source.compile(bounds={"N": 8}, isa=isa), source.compile(isa=isa)
    for batch in (8, 1, 7, 2, 8, 3):
        assert same(program(tokens(batch)), own(tokens(batch))), batch


def test_the_pooled_token_has_the_values_of_attention() -> None:
    program = model(POOLED).compile(bounds={"N": 8})
    for batch in (8, 3, 1):
        x = tokens(batch)["x"]
        q = (CONSTANTS["probe"][0] @ CONSTANTS["wq"]).reshape(1, HEADS, -1)
        k, v = ((x @ CONSTANTS[f"w{name}"]).reshape(batch, FRAMES, HEADS, -1) for name in "kv")
        shares = np.exp(np.einsum("qhd,nthd->nhqt", q, k))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("nhqt,nthd->nqhd", shares, v).reshape(batch, WIDTH)
        np.testing.assert_allclose(program({"x": x})["y"], mixed @ CONSTANTS["wo"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bounds", [{"N": 8, "T": 16}, {"N": 1, "T": 16}, {"N": 8}])
def test_rows_of_heads_in_front_of_tokens(bounds: dict[str, int]) -> None:
    """The batch and the heads are outer places of rows."""
    shape: tuple[int | str, ...] = ("N", "T" if "T" in bounds else FRAMES, WIDTH)
    program, own = model(GATE, shape).compile(bounds=bounds), model(GATE, shape).compile()
    for batch, length in ((8, 16), (1, 1), (3, 5), (8, 2), (2, 16), (5, 9), (1, 15)):
        given = tokens(min(batch, bounds["N"]), length if "T" in bounds else FRAMES)
        assert same(program(given), own(given)), (batch, length)


@pytest.mark.parametrize("bounds", [{"N": 8, "T": 16}, {"N": 8}])
def test_one_token_is_chosen_of_rows(bounds: dict[str, int]) -> None:
    """Normalized rows of heads are merged with the rows of tokens that they are parts of."""
    nodes = [
        reshape("x", "rows", "r"),
        reshape("r", "other_rows", "parts"),
        node("Softmax", ["parts"], ["shares"], axis=-1),
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["sizes", "zero", "two"], ["outer"]),
        node("Concat", ["outer", "minus", "quarter"], ["divided"], axis=0),
        reshape("shares", "rows", "whole"),
        node("MatMul", ["whole", "wq"], ["mixed"]),
        reshape("mixed", "sizes", "y"),
    ]
    constants = CONSTANTS | {"two": np.array([2]), "minus": np.array([-1]), "quarter": np.array([4])}
    made = tiny_model(nodes, {"x": ("N", "T", WIDTH)}, ["y"], constants, opset=17)
    source = qglow.load_model(made.SerializeToString())
    bounds = {"T": 16, **bounds}
    program, own = source.compile(bounds=bounds), source.compile()
    for batch, length in ((8, 16), (1, 1), (3, 5), (8, 2), (2, 16)):
        assert same(program(tokens(batch, length)), own(tokens(batch, length))), (batch, length)


SEEN = [transpose("x", "seen", 1, 0, 2), reshape("seen", "rows", "r")]


@pytest.mark.parametrize("places", [[1], [-1, 0, 4], [[2], [3]]])
def test_single_rows_are_those_of_the_call(places: list[int]) -> None:
    """Row N is the first one of the second frame, for all numbers N of samples."""
    nodes = [*SEEN, node("MatMul", ["r", "wq"], ["p"]), node("Gather", ["p", "places"], ["y"])]
    made = tiny_model(
        nodes, {"x": ("N", FRAMES, WIDTH)}, ["y"], CONSTANTS | {"places": np.array(places)}, opset=17
    )
    source = qglow.load_model(made.SerializeToString())
    program, own = source.compile(bounds={"N": 8}), source.compile()
    for batch in (8, 1, 3):
        x = RANDOM.normal(size=(batch, FRAMES, WIDTH)).astype(np.float32)
        assert same(program({"x": x}), own({"x": x})), batch


COMBINED = "combines the 5 by N places along axis 0 of 'r'"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([*SEEN[:1], reshape("seen", "rows", "y")], "output 'y' has rows of several dimensions"),
        ([*SEEN, node("ReduceSum", ["r", "zero"], ["y"], name="sum")], f"node 'sum' .*{COMBINED}"),
        ([*SEEN, node("Softmax", ["r"], ["y"], axis=0, name="shares")], f"node 'shares' .*{COMBINED}"),
        ([*SEEN, node("CumSum", ["r", "first"], ["y"], name="sums")], f"node 'sums' .*{COMBINED}"),
        ([*SEEN, node("Concat", ["r", "r"], ["y"], axis=0, name="both")], "'both' .*joins rows of several"),
        ([*SEEN, node("Slice", ["r", "one", "three"], ["y"], name="part")], f"node 'part' .*{COMBINED}"),
        (
            [
                *SEEN,
                node("Shape", ["x"], ["turned"]),
                node("MatMul", ["r", "wq"], ["p"]),
                node("Reshape", ["p", "turned"], ["y"], name="other"),
            ],
            "node 'other' .*combines the 5 by N places",
        ),
        (
            [
                *SEEN,
                reshape("x", "rows", "own"),
                node("Add", ["r", "own"], ["y"], name="add"),
            ],
            "node 'add' .*does not grow as",
        ),
        (
            [
                *SEEN,
                reshape("x", "rows", "own"),
                node("MatMul", ["own", "wq"], ["p"]),
                transpose("r", "columns", 1, 0),
                node("MatMul", ["p", "columns"], ["y"], name="product"),
            ],
            "output 'y' has rows of several dimensions",
        ),
    ],
)
def test_rows_behind_frames_are_only_divided_again(nodes: list[NodeProto], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        model(nodes).compile(bounds={"N": 8})


def test_rows_of_other_frames_are_not_added() -> None:
    """Rows of 10 frames by the batch and of 5 by twice as many have their live places elsewhere."""
    nodes = [
        *SEEN,
        reshape("x", "halves", "half"),
        transpose("half", "half_seen", 1, 0, 2),
        reshape("half_seen", "rows", "half_rows"),
        node("Add", ["r", "half_rows"], ["y"], name="add"),
    ]
    constants = CONSTANTS | {"halves": np.array([-1, FRAMES, WIDTH])}
    made = tiny_model(nodes, {"x": ("N", 2 * FRAMES, WIDTH)}, ["y"], constants, opset=17)
    source = qglow.load_model(made.SerializeToString())
    with pytest.raises(UnsupportedError, match="node 'add' .*combines the"):
        source.compile(bounds={"N": 8})


def test_running_sums_do_not_cross_sentences() -> None:
    """Sums of flattened tokens would begin with what is not live of the sentences before."""
    nodes = [
        reshape("x", "flat", "r"),
        node("CumSum", ["r", "first"], ["sums"], name="sums"),
        node("Shape", ["x"], ["sizes"]),
        reshape("sums", "sizes", "y"),
    ]
    made = tiny_model(nodes, {"x": ("N", "T")}, ["y"], CONSTANTS, opset=17)
    with pytest.raises(UnsupportedError, match="node 'sums' .*combines the N by T places"):
        qglow.load_model(made.SerializeToString()).compile(bounds={"N": 8, "T": 16})
