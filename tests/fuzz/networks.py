"""Small valid models, made in code: what the mutators of models begin with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.unit.importer import (
    elementwise_cases,
    movement_cases,
    normalization_cases,
    ranking_cases,
    reduce_cases,
    transposed_cases,
    window_cases,
)
from tests.unit.importer.test_quantized import MODELS as QUANTIZED
from tests.unit.importer.tiny import tiny_model
from tests.zoo import REPOSITORY

_FAMILIES = (
    elementwise_cases,
    movement_cases,
    normalization_cases,
    ranking_cases,
    reduce_cases,
    transposed_cases,
    window_cases,
)


def _model(
    nodes: list[tuple[str, list[str], str, dict[str, object]]],
    inputs: Mapping[str, list[int | str]],
    output: str,
    constants: Mapping[str, np.ndarray],
    integer_inputs: tuple[str, ...] = (),
) -> ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node(kind, sources, [result], name=f"{kind}_{index}", **attributes)
            for index, (kind, sources, result, attributes) in enumerate(nodes)
        ],
        "network",
        [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name in integer_inputs else TensorProto.FLOAT, shape
            )
            for name, shape in inputs.items()
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def image_classifier() -> ModelProto:
    """[N, 1, 8, 8] to ten classes."""
    rng = np.random.default_rng(5)
    return _model(
        [
            ("Conv", ["image", "w0", "b0"], "c0", {"pads": [1, 1, 1, 1]}),
            ("Relu", ["c0"], "r0", {}),
            ("MaxPool", ["r0"], "p0", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            ("Flatten", ["p0"], "f", {}),
            ("Gemm", ["f", "w1", "b1"], "logits", {"transB": 1}),
        ],
        {"image": ["N", 1, 8, 8]},
        "logits",
        {
            "w0": rng.normal(0, 0.5, (4, 1, 3, 3)).astype(np.float32),
            "b0": rng.normal(0, 0.1, 4).astype(np.float32),
            "w1": rng.normal(0, 0.3, (10, 64)).astype(np.float32),
            "b1": rng.normal(0, 0.1, 10).astype(np.float32),
        },
    )


def attention() -> ModelProto:
    """Token numbers [N, 4] through an embedding, one head and a normalization."""
    rng = np.random.default_rng(6)
    square = {name: rng.normal(0, 0.4, (8, 8)).astype(np.float32) for name in ("wq", "wk", "wv")}
    return _model(
        [
            ("Gather", ["table", "tokens"], "x", {}),
            ("MatMul", ["x", "wq"], "q", {}),
            ("MatMul", ["x", "wk"], "k", {}),
            ("MatMul", ["x", "wv"], "v", {}),
            ("Transpose", ["k"], "kt", {"perm": [0, 2, 1]}),
            ("MatMul", ["q", "kt"], "scores", {}),
            ("Mul", ["scores", "scale"], "scaled", {}),
            ("Add", ["scaled", "mask"], "masked", {}),
            ("Softmax", ["masked"], "weights", {"axis": -1}),
            ("MatMul", ["weights", "v"], "mixed", {}),
            ("Add", ["mixed", "x"], "sum", {}),
            ("LayerNormalization", ["sum", "gain", "shift"], "y", {"axis": -1}),
        ],
        {"tokens": ["N", 4]},
        "y",
        {
            "table": rng.normal(0, 1, (12, 8)).astype(np.float32),
            **square,
            "scale": np.array(0.35, np.float32),
            "mask": np.triu(np.full((4, 4), -10000, np.float32), 1),
            "gain": np.ones(8, np.float32),
            "shift": np.zeros(8, np.float32),
        },
        ("tokens",),
    )


def shapes() -> ModelProto:
    """Sizes that are computed, and everything that makes much of a little."""
    return _model(
        [
            ("Shape", ["x"], "s", {}),
            ("Gather", ["s", "zero"], "batch", {}),
            ("Concat", ["batch", "rest"], "target", {"axis": 0}),
            ("Reshape", ["x", "target"], "flat", {}),
            (
                "ConstantOfShape",
                ["sizes"],
                "zeros",
                {"value": numpy_helper.from_array(np.ones(1, np.float32))},
            ),
            ("Range", ["start", "limit", "delta"], "steps", {}),
            ("Cast", ["steps"], "real", {"to": TensorProto.FLOAT}),
            ("Add", ["zeros", "real"], "grid", {}),
            ("Tile", ["grid", "repeats"], "tiled", {}),
            ("Expand", ["tiled", "wide"], "wider", {}),
            ("Slice", ["wider", "starts", "ends"], "cut", {}),
            ("Add", ["flat", "cut"], "moved", {}),
            ("Unsqueeze", ["moved", "axes"], "image", {}),
            ("Pad", ["image", "pads"], "padded", {}),
            ("Resize", ["padded", "", "scales"], "resized", {"mode": "nearest"}),
            ("ReduceMean", ["resized"], "y", {"axes": [2], "keepdims": 0}),
        ],
        {"x": ["N", 3, 4]},
        "y",
        {
            "zero": np.array([0], np.int64),
            "rest": np.array([12], np.int64),
            "sizes": np.array([1, 12], np.int64),
            "start": np.array(0, np.int64),
            "limit": np.array(12, np.int64),
            "delta": np.array(1, np.int64),
            "repeats": np.array([1, 2], np.int64),
            "wide": np.array([1, 24], np.int64),
            "starts": np.array([0, 0], np.int64),
            "ends": np.array([1, 12], np.int64),
            "axes": np.array([1, 2], np.int64),
            "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
            "scales": np.array([1, 1, 2, 2], np.float32),
        },
    )


def networks() -> dict[str, bytes]:
    """Every model by its name, in the same order and of the same bytes in every run."""
    made = {"image": image_classifier(), "attention": attention(), "shapes": shapes()}
    found = {name: bytes(model.SerializeToString()) for name, model in made.items()}
    for name in ("wine", "sorter", "denoiser"):
        found[name] = (REPOSITORY / "tests" / "models" / f"{name}.onnx").read_bytes()
    for family in _FAMILIES:
        for case in family.CASES:
            model = tiny_model(
                [case.node], case.inputs, list(case.node.output), case.constants, case.opsets[-1]
            )
            found[f"{family.__name__.rsplit('.', 1)[-1]}-{case.name}"] = bytes(model.SerializeToString())
    for name, model in QUANTIZED.items():
        found[f"quantized-{name}"] = bytes(model.SerializeToString())
    return found


def feeds(data: bytes, samples: int = 4) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a model, samples along the first axis."""
    model = ModelProto.FromString(data)
    given = {tensor.name for tensor in model.graph.initializer}
    rng, found = np.random.default_rng(1), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [dim.dim_value or samples for dim in kind.shape.dim]
        if value.name in given:
            continue
        if kind.elem_type == TensorProto.FLOAT:
            found[value.name] = rng.normal(0, 1, [samples, *shape[1:]]).astype(np.float32)
        else:
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[value.name] = rng.integers(0, 4, [samples, *shape[1:]]).astype(dtype)
    return found


def write_data(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """Arrays as an .npz file."""
    np.savez(path, **arrays)
    return path
