"""Operators that onnxruntime's optimizer makes of transformers, held against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import UnsupportedError
from qglow.core.types import Array
from qglow.importer.rules import contributed_operators
from tests.unit.importer.tiny import save, session

RANDOM = np.random.default_rng(12)


def reals(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


def whole(*numbers: int, kind: Any = np.int32) -> Array:
    return np.array(numbers, kind)


@dataclass
class Fused:
    """One node of com.microsoft: inputs in its order, some of them constants; None for one left out."""

    operator: str
    inputs: Mapping[str, Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("y",)
    domain: str = "com.microsoft"
    opset: int = 17

    def model(self) -> onnx.ModelProto:
        names = ["" if array is None else name for name, array in self.inputs.items()]
        node = helper.make_node(
            self.operator, names, list(self.outputs), domain=self.domain, **self.attributes
        )
        given = {n: a for n, a in self.inputs.items() if a is not None}
        graph = helper.make_graph(
            [node],
            "fused",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a in given.items()
                if n not in self.constants
            ],
            [
                helper.make_tensor_value_info(
                    name, TensorProto.INT32 if name == "counts" else TensorProto.FLOAT, None
                )
                for name in self.outputs
                if name
            ],
            [numpy_helper.from_array(a, n) for n, a in given.items() if n in self.constants],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


X, SKIP = reals(2, 5, 16), reals(2, 5, 16)
SCALE, SHIFT, BIAS = reals(16), reals(16), reals(16)
NORMAL = {"x": X, "skip": SKIP, "scale": SCALE, "shift": SHIFT, "bias": BIAS}
Q, K, V = reals(2, 3, 16), reals(2, 7, 16), reals(2, 7, 16)
PADDING = (np.arange(7) < np.array([[7], [4]])).astype(np.int32)
WORDS = {
    "ids": RANDOM.integers(0, 11, (2, 5)).astype(np.int32),
    "segments": RANDOM.integers(0, 2, (2, 5)).astype(np.int32),
    "words": reals(11, 16),
    "places": reals(9, 16),
    "kinds": reals(2, 16),
    "scale": SCALE,
    "shift": SHIFT,
    "mask": PADDING[:, :5],
}
TABLES = ("words", "places", "kinds", "scale", "shift")
HEADS, ANGLES = reals(2, 4, 5, 8), RANDOM.uniform(-3, 3, (12, 4)).astype(np.float32)
TURNS = {"cos": np.cos(ANGLES), "sin": np.sin(ANGLES)}
POSITIONS = RANDOM.integers(0, 12, (2, 5)).astype(np.int64)
PROJECTED = {"x": X, "w": reals(16, 48), "b": reals(48)}
IMAGE = reals(2, 3, 5, 5)


def u8(number: int) -> Array:
    return np.array(number, np.uint8)


FLOAT_CODES = RANDOM.integers(0, 256, 72).astype(np.uint8)
BYTES = {
    "x": RANDOM.integers(0, 256, X.shape).astype(np.uint8),
    "w": RANDOM.integers(-60, 61, (16, 48)).astype(np.int8),
    "b": reals(48),
    "s": np.array(0.01, np.float32),
    "ws": np.array(0.02, np.float32),
}
"""Operands of QAttention. Weights have 7 bits: onnxruntime limits sums of uint8 by int8 with AVX2 alone."""
CONSTANT_BYTES = {name: RANDOM.integers(0, 256, WORDS[name].shape).astype(np.uint8) for name in TABLES}
BYTE_TABLES: dict[str, Array | None] = {
    **WORDS,
    **CONSTANT_BYTES,
    **{f"{name}_s": np.array(0.01 * (1 + place), np.float32) for place, name in enumerate(TABLES)},
    **{f"{name}_z": u8(100 + 10 * place) for place, name in enumerate(TABLES)},
}
BYTE_CONSTANTS = tuple(name for name in BYTE_TABLES if name not in ("ids", "segments", "mask"))
CASES: Mapping[str, Fused] = {
    "gelu": Fused("Gelu", {"x": X}),
    "bias-gelu": Fused("BiasGelu", {"x": X, "b": BIAS}, constants=("b",)),
    "fast-gelu": Fused("FastGelu", {"x": X}),
    "fast-gelu-bias": Fused("FastGelu", {"x": X, "b": BIAS}, constants=("b",)),
    "quick-gelu": Fused("QuickGelu", {"x": X}),
    "quick-gelu-alpha": Fused("QuickGelu", {"x": X}, {"alpha": 1.1}),
    "matmul": Fused("FusedMatMul", {"a": reals(2, 3, 4), "b": reals(2, 4, 5)}, {"alpha": 0.3}),
    "matmul-turned": Fused(
        "FusedMatMul", {"a": reals(2, 4, 3), "b": reals(5, 4)}, {"transA": 1, "transB": 1}
    ),
    "simplified": Fused(
        "SimplifiedLayerNormalization", {"x": X, "scale": SCALE}, {"epsilon": 1e-3}, domain=""
    ),
    "layer": Fused(
        "LayerNormalization",
        {"x": X, "scale": SCALE, "shift": SHIFT},
        {},
        ("scale", "shift"),
        domain="",
        opset=14,
    ),
    "skip": Fused("SkipLayerNormalization", NORMAL, {"epsilon": 1e-3}, ("scale", "shift", "bias")),
    "skip-sum": Fused(
        "SkipLayerNormalization", {**NORMAL, "bias": None}, {}, ("scale", "shift"), ("y", "", "", "sum")
    ),
    "skip-no-shift": Fused("SkipLayerNormalization", {**NORMAL, "shift": None}, {}, ("scale", "bias")),
    "skip-simplified": Fused(
        "SkipSimplifiedLayerNormalization",
        {n: a for n, a in NORMAL.items() if n != "shift"},
        {"epsilon": 1e-4},
        ("scale", "bias"),
        ("y", "", "", "sum"),
    ),
    "skip-simplified-plain": Fused(
        "SkipSimplifiedLayerNormalization", {"x": X, "skip": SKIP, "scale": SCALE}, {}, ("scale",)
    ),
    "embed": Fused("EmbedLayerNormalization", WORDS, {}, TABLES, ("y", "counts")),
    "embed-sum": Fused(
        "EmbedLayerNormalization",
        {**WORDS, "segments": None, "kinds": None, "mask": None},
        {"epsilon": 1e-3},
        TABLES,
        ("y", "counts", "sum"),
    ),
    "embed-placed": Fused(
        "EmbedLayerNormalization",
        {**WORDS, "position": np.minimum(POSITIONS, 8).astype(np.int32)},
        {},
        TABLES,
        ("y", "counts"),
    ),
    "rotary": Fused("RotaryEmbedding", {"x": HEADS, "at": POSITIONS, **TURNS}, {}, ("cos", "sin")),
    "rotary-near": Fused(
        "RotaryEmbedding", {"x": HEADS, "at": POSITIONS, **TURNS}, {"interleaved": 1}, ("cos", "sin")
    ),
    "rotary-flat": Fused(
        "RotaryEmbedding", {"x": X, "at": whole(3, kind=np.int64), **TURNS}, {}, ("cos", "sin")
    ),
    "rotary-part": Fused(
        "RotaryEmbedding",
        {"x": X, "at": POSITIONS, "cos": TURNS["cos"][:, :2], "sin": TURNS["sin"][:, :2]},
        {"num_heads": 2, "rotary_embedding_dim": 4},
        ("cos", "sin"),
    ),
    "heads": Fused("MultiHeadAttention", {"q": Q, "k": K, "v": V}, {"num_heads": 4}),
    "heads-bias": Fused(
        "MultiHeadAttention",
        {"q": Q, "k": K, "v": V[..., :8], "b": reals(40), "mask": PADDING, "added": reals(2, 4, 3, 7)},
        {"num_heads": 4, "scale": 0.3, "mask_filter_value": -50.0},
        ("b",),
    ),
    "heads-counts": Fused(
        "MultiHeadAttention", {"q": Q, "k": K, "v": V, "b": None, "mask": whole(7, 4)}, {"num_heads": 2}
    ),
    "heads-apart": Fused(
        "MultiHeadAttention", {"q": Q, "k": reals(2, 4, 7, 4), "v": reals(2, 4, 7, 4)}, {"num_heads": 4}
    ),
    "heads-past": Fused(
        "MultiHeadAttention",
        {
            **{"q": Q, "k": K[:, :3], "v": V[:, :3], "b": None, "mask": None, "added": None},
            **{"past_k": reals(2, 4, 6, 4), "past_v": reals(2, 4, 6, 4)},
        },
        {"num_heads": 4, "unidirectional": 1},
        (),
        ("y", "keys", "values"),
    ),
    "convolved": Fused(
        "FusedConv",
        {"x": IMAGE, "w": reals(4, 3, 3, 3), "b": reals(4), "z": reals(2, 4, 5, 5)},
        {"pads": [1, 1, 1, 1], "activation": "Relu"},
        ("w", "b"),
    ),
    "convolved-clip": Fused(
        "FusedConv",
        {"x": IMAGE, "w": reals(6, 1, 3, 3)},
        {"group": 3, "activation": "Clip", "activation_params": [-1.0, 2.0]},
        ("w",),
    ),
    "gemm-leaky": Fused(
        "FusedGemm",
        {"a": X[0], "b": reals(4, 16), "c": reals(4)},
        {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.1},
        ("b", "c"),
    ),
    "gemm-tanh": Fused("FusedGemm", {"a": X[0], "b": reals(16, 3)}, {"activation": "Tanh"}, ("b",)),
    "four-bit": Fused(
        "MatMulBnb4",
        {"x": X, "w": FLOAT_CODES, "largest": np.abs(reals(3))},
        {"K": 16, "N": 9, "block_size": 64, "quant_type": 0},
        ("w", "largest"),
    ),
    "four-bit-normal": Fused(
        "MatMulBnb4",
        {"x": X[0], "w": FLOAT_CODES, "largest": np.abs(reals(9))},
        {"K": 16, "N": 9, "block_size": 16, "quant_type": 1},
        ("w", "largest"),
    ),
    "bytes": Fused(
        "QAttention",
        {**BYTES, "mask": PADDING[:, :5], "z": u8(118), "wz": np.array(2, np.int8)},
        {"num_heads": 4},
        ("w", "b", "ws", "wz"),
    ),
    "bytes-past": Fused(
        "QAttention",
        {**BYTES, "mask": None, "z": None, "wz": None, "past": reals(2, 2, 4, 6, 4)},
        {"num_heads": 4, "unidirectional": 1},
        ("w", "b", "s", "ws"),
        ("y", "present"),
    ),
    "embed-bytes": Fused("QEmbedLayerNormalization", BYTE_TABLES, {}, BYTE_CONSTANTS, ("y", "counts")),
    "embed-bytes-plain": Fused(
        "QEmbedLayerNormalization",
        {**BYTE_TABLES, "segments": None, "kinds": None, "mask": None, "kinds_s": None, "kinds_z": None},
        {"epsilon": 1e-3},
        BYTE_CONSTANTS,
        ("y", "counts"),
    ),
    "projected": Fused("Attention", PROJECTED, {"num_heads": 4}, ("w", "b")),
    "projected-counts": Fused(
        "Attention", {**PROJECTED, "mask": whole(5, 3)}, {"num_heads": 2, "unidirectional": 1}, ("w", "b")
    ),
    "projected-mask": Fused(
        "Attention",
        {
            "x": X,
            "w": reals(16, 40),
            "b": reals(40),
            "mask": PADDING[:, :5],
            "past": None,
            "added": reals(2, 4, 5, 5),
        },
        {"num_heads": 4, "qkv_hidden_sizes": [16, 16, 8]},
        ("w", "b"),
    ),
    "projected-rows": Fused(
        "Attention",
        {**PROJECTED, "mask": RANDOM.integers(0, 2, (2, 5, 5)).astype(np.int32)},
        {"num_heads": 4},
    ),
    "projected-past": Fused(
        "Attention",
        {**PROJECTED, "mask": None, "past": reals(2, 2, 4, 6, 4)},
        {"num_heads": 4, "unidirectional": 1},
        ("w", "b"),
        ("y", "present"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_fused_is_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = save(case.model(), tmp_path)
    model = qglow.load_model(path, native=True)
    given = {n: a for n, a in case.inputs.items() if a is not None and n not in case.constants}
    found, results = model.interpret(given), [output for output in case.outputs if output]
    expected = dict(zip(results, session(path).run(results, given), strict=True))
    for output in results:
        assert found[output].shape == expected[output].shape and found[output].dtype == expected[output].dtype
        np.testing.assert_allclose(found[output], expected[output], rtol=2e-4, atol=2e-5)
    compiled = model.compile()(given)
    for output in results:
        np.testing.assert_allclose(compiled[output], expected[output], rtol=2e-4, atol=2e-5)


REFUSED: Mapping[str, tuple[Fused, str]] = {
    "packed": (Fused("MultiHeadAttention", {"q": reals(2, 3, 4, 3, 4)}, {"num_heads": 4}), "in one tensor"),
    "batches": (
        Fused("FusedMatMul", {"a": reals(2, 2, 3, 4), "b": reals(2, 2, 4, 5)}, {"transBatchA": 1}),
        "transBatchA is 1",
    ),
    "rotary": (
        Fused("Attention", PROJECTED, {"num_heads": 4, "do_rotary": 1}, ("w", "b")),
        "do_rotary is not 0",
    ),
    "four-bit": (
        Fused(
            "MatMulBnb4",
            {"x": X, "w": FLOAT_CODES, "largest": reals(9)},
            {"K": 16, "N": 9, "block_size": 16, "quant_type": 2},
            ("w", "largest"),
        ),
        "quant_type is 2",
    ),
    "statistics": (
        Fused("SkipLayerNormalization", NORMAL, {}, ("scale", "shift", "bias"), ("y", "mean")),
        "its output 1 is used",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_forms_are_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    case, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason):
        qglow.load_model(save(case.model(), tmp_path), native=True)


def test_all_of_them_are_tried() -> None:
    tried = {case.operator for case in CASES.values()}
    assert tried <= set(contributed_operators()) and len(tried) == 18


@pytest.mark.parametrize("attributes", [{}, {"approximate": 0}, {"approximate": 1}])
def test_gelu_of_tflite_is_that_of_onnx(attributes: dict[str, int], tmp_path: Path) -> None:
    way = "tanh" if attributes.get("approximate") else "none"
    known = Fused("Gelu", {"x": X}, {"approximate": way}, domain="", opset=20).model()
    passed_on = Fused("TFL_GELU", {"x": X}, attributes, domain="ai.onnx.converters.tensorflow").model()
    passed_on.opset_import.append(helper.make_opsetid("ai.onnx.converters.tensorflow", 1))
    model = qglow.load_model(save(passed_on, tmp_path), native=True)
    wanted = session(known).run(None, {"x": X})[0]
    assert np.abs(model.compile()({"x": X})["y"] - wanted).max() < 2e-6
    again = model.quantize(model.profile([{"x": X}]))
    error = again.compile()({"x": X})["y"] - wanted
    assert np.square(error).mean() < 10**-3.0 * np.square(wanted).mean()
