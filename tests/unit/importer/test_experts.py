"""Mixtures of experts as onnxruntime's operators have them, held against onnxruntime and against numpy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.errors import QglowError
from qglow.core.types import Array
from tests.unit.importer.test_blocks import joined, near
from tests.unit.importer.tiny import save, session

ROWS, WIDTH, HIDDEN, EXPERTS = 7, 32, 48, 5
PLACES = {
    "MoE": ("x", "scores", "w1", "b1", "w2", "b2", "w3", "b3"),
    "QMoE": ("x", "scores", "w1", "s1", "b1", "w2", "s2", "b2", "w3", "s3", "b3", "z1", "z2", "z3", "shares"),
}
COMPUTED = ("x", "scores", "shares")


@dataclass
class Mixture:
    """A model of one node, its inputs, and the weights that it stands for by number, [experts, N, K]."""

    operator: str
    attributes: dict[str, Any]
    inputs: dict[str, Array] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    weights: dict[int, Array] = field(default_factory=dict)

    def proto(self) -> onnx.ModelProto:
        given = [
            name if name in self.inputs or name in self.constants else "" for name in PLACES[self.operator]
        ]
        while not given[-1]:
            given.pop()
        node = helper.make_node(self.operator, given, ["y"], domain="com.microsoft", **self.attributes)
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in self.inputs.items()
        ]
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        stored = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph([node], "experts", inputs, [y], stored)
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def floats(random: np.random.Generator, shape: tuple[int, ...] = (ROWS, WIDTH), **attributes: Any) -> Mixture:
    """A MoE with biases."""
    made = Mixture("MoE", attributes)
    doubled = 2 if attributes.get("swiglu_fusion") else 1
    rows = int(np.prod(shape[:-1]))
    made.inputs = {
        "x": random.normal(size=shape).astype(np.float32),
        "scores": random.normal(size=(rows, EXPERTS)).astype(np.float32),
    }
    for number, (columns, depth) in {1: (doubled * HIDDEN, WIDTH), 2: (WIDTH, HIDDEN)}.items():
        made.weights[number] = random.normal(size=(EXPERTS, columns, depth)).astype(np.float32) * np.float32(
            0.2
        )
        made.constants[f"w{number}"] = made.weights[number]
        made.constants[f"b{number}"] = random.normal(size=(EXPERTS, columns)).astype(np.float32)
    return made


def integers(
    random: np.random.Generator, bits: int, block: int = 0, zeros: bool = False, **attributes: Any
) -> Mixture:
    """A QMoE, by columns or by blocks of them."""
    made = floats(random, **attributes)
    made.operator = "QMoE"
    made.attributes["expert_weight_bits"] = bits
    if block:
        made.attributes["block_size"] = block
    for number, real in list(made.weights.items()):
        count, columns, depth = real.shape
        length = block or depth
        codes = random.integers(0, 1 << bits, real.shape).astype(np.uint8)
        scales = random.uniform(0.01, 0.1, (count, columns, depth // length)).astype(np.float32)
        points = np.full(scales.shape, 1 << (bits - 1), np.uint8)
        if zeros:
            points = random.integers(0, 1 << bits, scales.shape).astype(np.uint8)
            flat = points.reshape(count * columns, -1) if block else points.reshape(count, columns)
            stored = joined(flat, bits)
            made.constants[f"z{number}"] = stored.reshape(count, columns, -1) if block else stored
        made.weights[number] = np.asarray(
            (codes - np.repeat(points, length, 2).astype(np.float32)) * np.repeat(scales, length, 2),
            np.float32,
        )
        packed = joined(codes.reshape(count * columns, depth), bits)
        made.constants[f"w{number}"] = packed.reshape(count, columns, -1)
        made.constants[f"s{number}"] = scales if block else scales[..., 0]
    return made


def compiled(mixture: Mixture, folder: Path, **options: Any) -> Array:
    """The result of a compiled program, which has no node that it does not know itself."""
    model = qglow.load_model(save(mixture.proto(), folder), native=True, **options)
    found: Array = model.compile()(mixture.inputs)["y"]
    return found


ACTIVATIONS: list[dict[str, Any]] = [
    {"activation_type": "relu"},
    {"activation_type": "silu", "normalize_routing_weights": 1},
    {"activation_type": "gelu", "normalize_routing_weights": 1},
    {"activation_type": "identity"},
    {
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
        "activation_alpha": 1.702,
        "activation_beta": 1.0,
        "swiglu_limit": 1.5,
    },
]


@pytest.mark.parametrize("attributes", ACTIVATIONS, ids=lambda given: given["activation_type"])
@pytest.mark.parametrize("k", [1, 3])
def test_floats_are_what_onnxruntime_computes(attributes: dict[str, Any], k: int, tmp_path: Path) -> None:
    shape = (2, 4, WIDTH) if k == 1 else (ROWS, WIDTH)
    mixture = floats(np.random.default_rng(k), shape, k=k, **attributes)
    near(compiled(mixture, tmp_path), session(mixture.proto()).run(None, mixture.inputs)[0])


@pytest.mark.parametrize("attributes", ACTIVATIONS[-2:], ids=lambda given: given["activation_type"])
@pytest.mark.parametrize(
    ("bits", "block", "zeros"), [(4, 0, False), (4, 16, True), (4, 16, False), (2, 16, False), (4, 0, True)]
)
def test_integers_are_what_onnxruntime_computes(
    attributes: dict[str, Any], bits: int, block: int, zeros: bool, tmp_path: Path
) -> None:
    mixture = integers(np.random.default_rng(bits), bits, block, zeros, k=2, **attributes)
    near(compiled(mixture, tmp_path), session(mixture.proto()).run(None, mixture.inputs)[0], 2e-5)


def by_numpy(mixture: Mixture, gate: Array, passed: Array, shares: Array, chosen: Array) -> Array:
    """Sum over chosen experts of gates, which are activated already, times what they let through."""
    hidden = gate * passed
    result = np.einsum("mkh,mkch->mkc", hidden, mixture.weights[2][chosen]) + mixture.constants["b2"][chosen]
    return np.asarray(np.einsum("mk,mkc->mc", shares, result), np.float32)


def _first(scores: Array, k: int) -> tuple[Array, Array]:
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    taken = np.exp(np.take_along_axis(scores, chosen, 1))
    return chosen, taken / taken.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("fusion", [0, 2])
def test_gates_in_halves_and_in_a_matrix_of_their_own(fusion: int, tmp_path: Path) -> None:
    """Layouts of SwiGLU that onnxruntime's processor does not have."""
    random = np.random.default_rng(3 + fusion)
    mixture = floats(random, k=2, activation_type="swiglu", swiglu_fusion=fusion, normalize_routing_weights=1)
    if not fusion:
        mixture.constants["w3"] = random.normal(size=(EXPERTS, HIDDEN, WIDTH)).astype(np.float32)
        mixture.constants["b3"] = random.normal(size=(EXPERTS, HIDDEN)).astype(np.float32)
    x, (chosen, shares) = mixture.inputs["x"], _first(mixture.inputs["scores"], 2)

    def layer(number: int) -> Array:
        own, bias = mixture.constants[f"w{number}"][chosen], mixture.constants[f"b{number}"][chosen]
        return np.asarray(np.einsum("mh,mkch->mkc", x, own) + bias)

    first = layer(1)
    gate, passed = (first[..., :HIDDEN], first[..., HIDDEN:]) if fusion else (first, layer(3))
    near(compiled(mixture, tmp_path), by_numpy(mixture, gate / (1 + np.exp(-gate)), passed, shares, chosen))


@pytest.mark.parametrize("normalized", [0, 1])
def test_other_scores_may_weight_the_results(normalized: int, tmp_path: Path) -> None:
    mixture = integers(
        np.random.default_rng(9), 4, 16, k=2, activation_type="identity", normalize_routing_weights=normalized
    )
    mixture.inputs["shares"] = np.random.default_rng(1).uniform(0.1, 1, (ROWS, EXPERTS)).astype(np.float32)
    near(compiled(mixture, tmp_path), session(mixture.proto()).run(None, mixture.inputs)[0], 2e-5)


def test_codes_of_8_bits_stay_beside_floats(tmp_path: Path) -> None:
    """onnxruntime rounds activations beside blocks of 8 bits; these are the products of floats."""
    mixture = integers(np.random.default_rng(4), 8, 16, True, k=2, activation_type="identity")
    chosen, shares = _first(mixture.inputs["scores"], 2)
    hidden = np.einsum("mh,mkch->mkc", mixture.inputs["x"], mixture.weights[1][chosen])
    hidden += mixture.constants["b1"][chosen]
    near(compiled(mixture, tmp_path), by_numpy(mixture, hidden, np.float32(1), shares, chosen), 2e-5)


def test_rows_at_run_time(tmp_path: Path) -> None:
    """One program multiplies any number of rows, each as if it were alone."""
    mixture = integers(np.random.default_rng(5), 4, 16, k=2, **ACTIVATIONS[-1])
    proto = mixture.proto()
    for value in proto.graph.input:
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    bounded = qglow.load_model(save(proto, tmp_path), native=True).compile(bounds={"rows": 16})
    own = qglow.load_model(save(mixture.proto(), tmp_path), native=True).compile()
    wanted = own(mixture.inputs)["y"]
    for count in (1, 3, ROWS):
        part = {name: np.ascontiguousarray(array[:count]) for name, array in mixture.inputs.items()}
        assert np.array_equal(bounded(part)["y"], wanted[:count])


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"use_sparse_mixer": 1}, "use_sparse_mixer"),
        ({"activation_type": "tanh"}, "activation_type"),
        ({"activation_type": "swiglu", "swiglu_fusion": 0}, "third matrix"),
    ],
)
def test_what_is_not_supported_is_said(attributes: dict[str, Any], what: str, tmp_path: Path) -> None:
    mixture = floats(np.random.default_rng(0), k=2, **attributes)
    with pytest.raises(QglowError, match=what):
        qglow.load_model(save(mixture.proto(), tmp_path), native=True)
