"""Networks whose float results are those of a good network, and whose channels int8 cannot hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import qglow
from tests.end_to_end.conftest import MODEL

FACTOR = 100.0

Places = dict[str, tuple[str, str]]
"""{normalization: (weights that read it, value after the bound)}: where a factor can be put in and out."""

RELU: Places = {"block1.0.bn": ("block1.1.weight", "block1.0.relu")}
POOLING: Places = {"block5.bn": ("head.weight", "block5.relu")}
RELU6: Places = {f"block{i}.1.bn": (f"block{i}.2.weight", f"block{i}.1.relu6") for i in (2, 3, 4)}
DEPTHWISE: Places = {f"block{i}.0.bn": (f"block{i}.1.weight", f"block{i}.0.relu6") for i in (2, 3, 4)}


def rescaled_digits(path: Path, places: Places, seed: int = 3) -> Path:
    """The example with some channels of some values 100 times smaller, and the weights that read them larger.

    Channels that come near the bound of a Clip keep their size, so that float results stay the same.
    """
    model = onnx.load(MODEL)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    random = np.random.default_rng(seed)
    highest = _highest([value for _, value in places.values()])
    for normalization, (weights, value) in places.items():
        size = tensors[f"{normalization}.scale"].dims[0]
        small = random.random(size) < 0.75
        factors = np.where(small & (highest[value] < 5.5), 1.0 / FACTOR, 1.0)
        for name in ("scale", "shift"):
            _multiply(tensors[f"{normalization}.{name}"], factors)
        read = tensors[weights]
        axis = [1] * len(read.dims)
        axis[0 if read.dims[1] == 1 else 1] = -1  # depthwise weights have their channels in front
        _multiply(read, (1.0 / factors).reshape(axis))
    onnx.save(model, path)
    return path


def _multiply(tensor: onnx.TensorProto, factors: np.ndarray) -> None:
    data = numpy_helper.to_array(tensor) * factors
    tensor.CopyFrom(numpy_helper.from_array(data.astype(np.float32), tensor.name))


def _highest(values: list[str]) -> dict[str, np.ndarray]:
    """The largest element of every channel over all the data that there is."""
    found: dict[str, np.ndarray] = {}
    model = qglow.load_model(MODEL)
    for name in ("calib.npz", "test.npz"):
        profile = model.profile(MODEL.parent / name)
        for entry in profile.values.values():
            if entry.name in values and entry.statistics.channels is not None:
                high = entry.statistics.channels.high
                found[entry.name] = np.maximum(found.get(entry.name, high), high)
    return found


TOKENS, WIDTH, HIDDEN = 8, 32, 64


def transformer(path: Path, calibration: Path, outliers: bool = True) -> Path:
    """A transformer block over the rows of the digits; its head is fitted, its other weights are drawn.

    outliers: some channels of the normalizations are 100 times larger than others, and the weights that
    read them smaller, as happens in trained language models. Float results stay the same.
    """
    random = np.random.default_rng(11)
    factors = np.where(np.arange(WIDTH) % 8 == 3, FACTOR, 1.0) if outliers else np.ones(WIDTH)
    block = _block(random, factors)
    onnx.save(_model(block, "features", TOKENS * WIDTH), path)
    with np.load(calibration) as data:
        features = _features(path, data["input"])
        targets = np.eye(10)[data["label"]] - 0.1
    inner = features.T @ features
    ridge = 1e-2 * np.trace(inner) / len(inner) * np.eye(len(inner))
    block["head"] = np.linalg.solve(inner + ridge, features.T @ targets)
    onnx.save(_model(block, "logits", 10), path)
    return path


def _block(random: np.random.Generator, factors: np.ndarray) -> dict[str, np.ndarray]:
    def drawn(rows: int, columns: int) -> np.ndarray:
        return random.normal(size=(rows, columns)) / np.sqrt(rows)

    weights = {"embed": drawn(TOKENS, WIDTH), "position": 0.3 * random.normal(size=(1, TOKENS, WIDTH))}
    for name in ("ln1", "ln2"):
        weights[f"{name}.scale"] = factors * random.uniform(0.5, 1.5, WIDTH)
        weights[f"{name}.shift"] = factors * random.normal(0.0, 0.1, WIDTH)
    for name in ("query", "key", "value"):
        weights[name] = drawn(WIDTH, WIDTH) / factors[:, None]
    weights["out"] = drawn(WIDTH, WIDTH)
    weights["up"] = drawn(WIDTH, HIDDEN) / factors[:, None]
    weights["down"] = drawn(HIDDEN, WIDTH)
    return weights


def _model(weights: dict[str, np.ndarray], output: str, size: int) -> onnx.ModelProto:
    node = onnx.helper.make_node

    def norm(x: str, name: str) -> onnx.NodeProto:
        return node("LayerNormalization", [x, f"{name}.scale", f"{name}.shift"], [name], axis=-1)

    def linear(x: str, name: str) -> onnx.NodeProto:
        return node("MatMul", [x, name], [f"{name}.y"])

    nodes = [
        node("Reshape", ["input", "rows"], ["tokens"]),
        linear("tokens", "embed"),
        node("Add", ["embed.y", "position"], ["stream0"]),
        norm("stream0", "ln1"),
        *(linear("ln1", name) for name in ("query", "key", "value")),
        node("Transpose", ["key.y"], ["key.t"], perm=[0, 2, 1]),
        node("MatMul", ["query.y", "key.t"], ["scores"]),
        node("Mul", ["scores", "sharpness"], ["scaled"]),
        node("Softmax", ["scaled"], ["attention"], axis=-1),
        node("MatMul", ["attention", "value.y"], ["mixed"]),
        linear("mixed", "out"),
        node("Add", ["stream0", "out.y"], ["stream1"]),
        norm("stream1", "ln2"),
        linear("ln2", "up"),
        node("Relu", ["up.y"], ["hidden"]),
        linear("hidden", "down"),
        node("Add", ["stream1", "down.y"], ["stream2"]),
        node("Flatten", ["stream2"], ["features"]),
    ]
    if "head" in weights:
        nodes.append(node("MatMul", ["features", "head"], ["logits"]))
    constants = [numpy_helper.from_array(data.astype(np.float32), name) for name, data in weights.items()]
    constants.append(numpy_helper.from_array(np.array([-1, TOKENS, TOKENS], np.int64), "rows"))
    constants.append(numpy_helper.from_array(np.array(WIDTH**-0.5, np.float32), "sharpness"))
    kind = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "transformer",
        [onnx.helper.make_tensor_value_info("input", kind, ["N", 1, TOKENS, TOKENS])],
        [onnx.helper.make_tensor_value_info(output, kind, ["N", size])],
        constants,
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def _features(path: Path, inputs: np.ndarray) -> np.ndarray:
    program = qglow.load_model(path).compile()
    return np.concatenate([program({"input": sample[None]})["features"] for sample in inputs])
