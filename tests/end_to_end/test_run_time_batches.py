"""Convolutional networks for all batches up to a bound: the bits of a program for one image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.runtime.executable import Executable
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import tiny_model

node = helper.make_node
BOUND = 12
SIZE = 12


class Network:
    """Nodes of a network, and its weights."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, Array] = {}
        self._generator = np.random.default_rng(0)

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (self._generator.normal(size=shape) * 0.2).astype(np.float32)
        return name

    def add(self, operator: str, inputs: list[str], output: str, **attributes: object) -> None:
        self.nodes.append(node(operator, inputs, [output], **attributes))

    def conv(self, x: str, y: str, filters: tuple[int, int, int], pad: int = 1, group: int = 1) -> None:
        outputs, inputs, size = filters
        operands = [x, self.weight(outputs, inputs, size, size), self.weight(outputs)]
        self.add("Conv", operands, f"{y}_sum", pads=[pad] * 4, group=group)
        self.add("Relu", [f"{y}_sum"], y)

    def model(self, *outputs: str) -> qglow.Model:
        made = tiny_model(self.nodes, {"x": ("N", 3, SIZE, SIZE)}, list(outputs), self.weights)
        return qglow.load_model(made.SerializeToString())


def classifier() -> qglow.Model:
    """Dense, grouped and depthwise convolutions, both pools, a concatenation, a mean at the end."""
    made = Network()
    made.conv("x", "stem", (16, 3, 3))
    made.conv("stem", "deep", (16, 1, 3), group=16)
    made.conv("deep", "point", (32, 16, 1), pad=0)
    made.add("MaxPool", ["point"], "half", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    made.conv("half", "grouped", (32, 16, 3), group=2)
    made.add("Add", ["grouped", "half"], "sum")
    made.add("Concat", ["sum", "half"], "both", axis=1)
    made.add("AveragePool", ["both"], "small", kernel_shape=[2, 2], strides=[2, 2])
    made.conv("small", "last", (24, 64, 3))
    made.add("GlobalAveragePool", ["last"], "mean")
    made.add("Flatten", ["mean"], "flat")
    made.add("Gemm", ["flat", made.weight(24, 10), made.weight(10)], "logits")
    made.add("Softmax", ["logits"], "y", axis=1)
    return made.model("y", "sum")


def decoder() -> qglow.Model:
    """Normalizations, borders, both ways of resizing, moved channels."""
    made = Network()
    made.weights |= {
        "border": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "twice": np.array([1, 1, 2, 2], np.float32),
        "perm": np.array([0]),
    }
    made.add("Pad", ["x", "border"], "framed")
    made.conv("framed", "stem", (16, 3, 3), pad=0)
    made.add("LRN", ["stem"], "response", size=3)
    made.add("InstanceNormalization", ["response", made.weight(16), made.weight(16)], "standard")
    made.add("MaxPool", ["standard"], "half", kernel_shape=[2, 2], strides=[2, 2])
    made.add("Resize", ["half", "", "twice"], "linear", mode="linear")
    made.add("Resize", ["half", "", "twice"], "nearest", mode="nearest")
    made.add("Concat", ["linear", "nearest"], "both", axis=1)
    made.conv("both", "merged", (16, 32, 3))
    made.add("DepthToSpace", ["merged"], "image", blocksize=2)
    made.add("Transpose", ["image"], "turned", perm=[0, 2, 3, 1])
    made.add("ReduceMean", ["turned"], "mean", axes=[1, 2])
    return made.model("turned", "mean")


def images(batch: int, seed: int = 0) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).normal(size=(batch, 3, SIZE, SIZE)).astype(np.float32)}


def one_by_one(program: Executable, given: dict[str, Array]) -> dict[str, Array]:
    """Results of a batch, each image in a call of its own."""
    results = [program({"x": image[None]}) for image in given["x"]]
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


def quantized(model: qglow.Model) -> qglow.QuantizedModel:
    return model.quantize(model.profile(images(8)), repair=False, check=False)


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("form", ["float", "int8"])
@pytest.mark.parametrize("network", [classifier, decoder])
def test_every_batch_has_the_bits_of_a_program_of_its_own(network: object, form: str, isa: str) -> None:
    model = classifier() if network is classifier else decoder()
    source = model if form == "float" else quantized(model)
    bounded, own = source.compile(bounds={"N": BOUND}, isa=isa), source.compile(isa=isa)
    for batch in (1, BOUND, 5):
        given = images(batch, batch)
        found, wanted = bounded(given), one_by_one(own, given)
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted), batch


def test_threads_share_the_images_of_a_batch() -> None:
    source = quantized(classifier())
    bounded, own = source.compile(bounds={"N": BOUND}, threads=2), source.compile()
    for batch in (2, 9):
        given = images(batch)
        assert bounded(given)["sum"].tobytes() == one_by_one(own, given)["sum"].tobytes()


def test_all_instructions_leave_out_images_that_are_not_there() -> None:
    for source in (classifier(), quantized(classifier())):
        program = source.compile(bounds={"N": BOUND})
        code = program._programs[-1].executable.program.code  # type: ignore[attr-defined]
        whole = [i.name for i in code if i.operation.touches_memory and not i.live]
        assert whole == []


def test_one_file_has_a_program_for_all_batches(tmp_path: Path) -> None:
    source = quantized(classifier())
    source.save(tmp_path / "made", shapes={"x": (f"1..{BOUND}", 3, SIZE, SIZE)})
    loaded = qglow.load(tmp_path / "made" / "model.qglow", trust=True)
    assert len(loaded.to_dict()["programs"]) == 1
    own = source.compile()
    for batch in (1, 7):
        given = images(batch)
        assert loaded(given)["y"].tobytes() == one_by_one(own, given)["y"].tobytes()


def encoder(length: int | str) -> qglow.Model:
    """A layer of a transformer over tokens: products, attention with a mask, a normalization, a head."""
    made = Network()
    for name in ("q", "k", "v"):
        made.add("MatMul", ["x", made.weight(16, 16)], f"{name}_rows")
        made.add("Add", [f"{name}_rows", made.weight(16)], f"{name}_sum")
        made.add("Reshape", [f"{name}_sum", "heads"], f"{name}_parts")
    made.add("Transpose", ["q_parts"], "q", perm=[0, 2, 1, 3])
    made.add("Transpose", ["k_parts"], "k", perm=[0, 2, 3, 1])
    made.add("Transpose", ["v_parts"], "v", perm=[0, 2, 1, 3])
    made.add("MatMul", ["q", "k"], "products")
    made.add("Add", ["products", "mask"], "scores")
    made.add("Softmax", ["scores"], "shares", axis=-1)
    made.add("MatMul", ["shares", "v"], "mixed")
    made.add("Transpose", ["mixed"], "turned", perm=[0, 2, 1, 3])
    made.add("Reshape", ["turned", "whole"], "joined")
    made.add("MatMul", ["joined", made.weight(16, 16)], "projected")
    made.add("Add", ["projected", "x"], "residual")
    made.add("LayerNormalization", ["residual", made.weight(16), made.weight(16)], "y", axis=-1)
    made.add("Gather", ["y", "first"], "token", axis=1)
    made.add("Gemm", ["token", made.weight(16, 5)], "logits")
    made.weights |= {"heads": np.array([0, 0, 4, 4]), "whole": np.array([0, 0, 16])}
    made.weights |= {"first": np.array(0)}
    shapes = {"x": ("N", length, 16), "mask": ("N", 1, 1, length)}
    model = tiny_model(made.nodes, shapes, ["y", "logits"], made.weights, opset=17)
    return qglow.load_model(model.SerializeToString())


def sentences(batch: int, length: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    masked = np.where(random.random((batch, 1, 1, length)) < 0.2, -1e4, 0.0)
    masked[..., 0] = 0.0
    x = random.normal(size=(batch, length, 16))
    return {"x": x.astype(np.float32), "mask": masked.astype(np.float32)}


@pytest.mark.parametrize("isa", NATIVE_ISAS)
@pytest.mark.parametrize("form", ["float", "int8", "dynamic"])
@pytest.mark.parametrize("length", [10, "T"])
def test_batches_of_sentences_have_the_bits_of_their_own(length: int | str, form: str, isa: str) -> None:
    """Rows of products are tokens of all sentences, those of each where both numbers are bounded."""
    model = encoder(length)
    source: qglow.Model | qglow.QuantizedModel = model
    if form == "int8":
        source = model.quantize(model.profile(sentences(8, 10)), repair=False, check=False)
    elif form == "dynamic":
        fixed = {name: array.shape for name, array in sentences(1, 10).items()}
        source = model.at(fixed).quantize(dynamic=True, check=False)
    bounds = {"N": 9, "T": 14} if length == "T" else {"N": 9}
    program, own = source.compile(bounds=bounds, isa=isa), source.compile(isa=isa)
    for batch, count in ((9, 14), (4, 10), (1, 3), (7, 1)) if length == "T" else ((9, 10), (4, 10), (1, 10)):
        given = sentences(batch, count)
        wanted, found = own(given), program(given)
        assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted), (batch, count)


ROWS = node("Reshape", ["x", "rows"], ["r"])
COMBINED = "combines the N by T places along axis 0 of 'r'"


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Reshape", ["x", "rows"], ["y"])], "output 'y' has rows of several dimensions"),
        ([ROWS, node("ReduceSum", ["r", "zero"], ["y"], name="sum")], f"node 'sum' .*{COMBINED}"),
        ([ROWS, node("Softmax", ["r"], ["y"], axis=0, name="shares")], f"node 'shares' .*{COMBINED}"),
        (
            [ROWS, node("Concat", ["r", "r"], ["y"], axis=0, name="both")],
            "node 'both' .*joins rows of several",
        ),
        (
            [
                ROWS,
                node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
                node("Shape", ["t"], ["turned"]),
                node("Reshape", ["r", "turned"], ["y"], name="other"),
            ],
            "node 'other' .*needs all N places",
        ),
    ],
)
def test_rows_of_two_dimensions_are_only_divided_again(nodes: list[NodeProto], message: str) -> None:
    constants = {"rows": np.array([-1, 4]), "zero": np.array([0])}
    made = tiny_model(nodes, {"x": ("N", "T", 4)}, ["y"], constants, opset=17)
    with pytest.raises(UnsupportedError, match=message):
        qglow.load_model(made.SerializeToString()).compile(bounds={"N": 12, "T": 16})
