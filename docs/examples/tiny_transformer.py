"""Writes a tiny transformer and data for it: no download, a second of work.

    python docs/examples/tiny_transformer.py FOLDER

One block of attention and a feed-forward layer over sequences of 8 tokens. The task: which token occurs
most often? All weights are drawn, except for those of the last layer, which are fitted by least squares.
Writes FOLDER/transformer.onnx and calib.npz, test.npz with inputs `tokens` and labels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import qglow

WORDS, LENGTH, WIDTH, HEADS, HIDDEN = 10, 8, 32, 2, 64
DEPTH = WIDTH // HEADS
SAMPLES = {"calib": 300, "test": 1000}

Weights = dict[str, np.ndarray]


def draw(random: np.random.Generator) -> Weights:
    """Draw all weights but the last layer's."""

    def matrix(rows: int, columns: int) -> np.ndarray:
        return random.normal(size=(rows, columns)) / np.sqrt(rows)

    weights = {
        "table": random.normal(size=(WORDS, WIDTH)),
        "position": 0.3 * random.normal(size=(LENGTH, WIDTH)),
    }
    for name in ("query", "key", "value", "out"):
        weights[name] = matrix(WIDTH, WIDTH)
    weights |= {"up": matrix(WIDTH, HIDDEN), "down": matrix(HIDDEN, WIDTH)}
    for name in ("norm1", "norm2"):
        weights |= {f"{name}.scale": np.ones(WIDTH), f"{name}.bias": np.zeros(WIDTH)}
    return weights


def attention() -> list[onnx.NodeProto]:
    """Return softmax(q k^T / sqrt(depth)) v, in heads."""
    node = helper.make_node
    nodes = []
    for name, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        nodes += [
            node("MatMul", ["norm1", name], [f"{name}.rows"]),
            node("Reshape", [f"{name}.rows", "heads"], [f"{name}.split"]),
            node("Transpose", [f"{name}.split"], [f"{name}.heads"], perm=order),
        ]
    return [
        *nodes,
        node("MatMul", ["query.heads", "key.heads"], ["scores"]),
        node("Mul", ["scores", "sharpness"], ["scaled"]),
        node("Softmax", ["scaled"], ["attention"], axis=-1),
        node("MatMul", ["attention", "value.heads"], ["mixed"]),
        node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "joined"], ["rows"]),
        node("MatMul", ["rows", "out"], ["projected"]),
    ]


def build(weights: Weights, output: str, size: int) -> onnx.ModelProto:
    """Build the network up to `output`, which is [N, size]."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "tokens"], ["words"]),
        node("Add", ["words", "position"], ["stream0"]),
        node("LayerNormalization", ["stream0", "norm1.scale", "norm1.bias"], ["norm1"], axis=-1),
        *attention(),
        node("Add", ["stream0", "projected"], ["stream1"]),
        node("LayerNormalization", ["stream1", "norm2.scale", "norm2.bias"], ["norm2"], axis=-1),
        node("MatMul", ["norm2", "up"], ["wide"]),
        node("Gelu", ["wide"], ["hidden"]),
        node("MatMul", ["hidden", "down"], ["narrow"]),
        node("Add", ["stream1", "narrow"], ["stream2"]),
        node("ReduceMean", ["stream2", "axis"], ["features"], keepdims=0),
    ]
    if output == "logits":
        nodes.append(node("Gemm", ["features", "head", "head.bias"], ["logits"]))
    constants = {name: array.astype(np.float32) for name, array in weights.items()} | {
        "heads": np.array([0, 0, HEADS, DEPTH]),
        "joined": np.array([0, 0, WIDTH]),
        "axis": np.array([1]),
        "sharpness": np.float32(DEPTH**-0.5),
    }
    graph = helper.make_graph(
        nodes,
        "tiny_transformer",
        [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["N", LENGTH])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", size])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def sequences(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw sequences in which one token is more frequent than any other; it is the label."""
    labels = random.integers(0, WORDS, count)
    tokens = random.integers(0, WORDS, (count, LENGTH))
    for row, label in zip(tokens, labels, strict=True):
        row[random.permutation(LENGTH)[:5]] = label
    return tokens, labels


def fit_head(weights: Weights, path: Path, tokens: np.ndarray, labels: np.ndarray) -> None:
    """Fit the last layer to the features of some sequences."""
    onnx.save(build(weights, "features", WIDTH), path)
    program = qglow.load_model(path).compile()
    features = np.concatenate([program({"tokens": row[None]})["features"] for row in tokens])
    features = np.hstack([features, np.ones((len(features), 1))])
    head = np.linalg.lstsq(features, 8.0 * np.eye(WORDS)[labels], rcond=None)[0]
    weights |= {"head": head[:-1], "head.bias": head[-1]}


def main(folder: Path) -> None:
    """Write the model and its data."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    weights = draw(random)
    path = folder / "transformer.onnx"
    fit_head(weights, path, *sequences(random, 2000))
    onnx.save(build(weights, "logits", WORDS), path)
    for name, count in SAMPLES.items():
        tokens, labels = sequences(random, count)
        np.savez(folder / f"{name}.npz", tokens=tokens, label=labels)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "transformer"))
