"""Limits of the memory of bundles, to the byte."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.emulation.bundle import load_bundle
from qglow.emulation.manifest import read_manifest
from tests.emulated import needs

DIGITS = Path(__file__).parents[2] / "calib_data"


@pytest.fixture(scope="module")
def digits() -> qglow.QuantizedModel:
    model = qglow.load_model(DIGITS / "digits.onnx")
    profile = model.profile(DIGITS / "calib.npz", samples=20)
    return model.quantize(profile, check=False, repair=False)


@pytest.mark.parametrize(("target", "ends"), [("cortex-m4", "float"), ("x86-64-v3", "int8"), ("c", "float")])
def test_the_limit_of_an_arena_is_that_of_the_bundle(
    digits: qglow.QuantizedModel, target: str, ends: str, tmp_path: Path
) -> None:
    """To the byte, with what lies beside the values of the program: copies of int8 inputs, and slack."""
    made = digits
    if ends == "int8":
        model = qglow.load_model(DIGITS / "digits.onnx")
        profile = model.profile(DIGITS / "calib.npz", samples=20)
        made = model.quantize(profile, qglow.Recipe(io="int8"), check=False, repair=False)
    made.save_bundle(tmp_path / "usual", isa=target)
    usual = read_manifest(tmp_path / "usual").arena_bytes
    assert not made.save_bundle(tmp_path / "exact", isa=target, max_arena=str(usual))
    try:
        assert made.save_bundle(tmp_path / "less", isa=target, max_arena=str(usual - 1))
    except qglow.MemoryLimitError as error:
        assert "is the first to hold" in str(error)
    else:
        assert read_manifest(tmp_path / "less").arena_bytes < usual


def test_weights_that_find_no_room_are_those_of_a_layer_as_they_are_packed(
    digits: qglow.QuantizedModel, tmp_path: Path
) -> None:
    with pytest.raises(qglow.MemoryLimitError) as refused:
        digits.save_bundle(tmp_path / "made", isa="cortex-m4", max_flash="30K")
    assert "'dealloc" not in str(refused.value)
    largest = re.search(r"largest weights, ([\d.]+)K", str(refused.value))
    assert largest is not None and float(largest[1]) > 3
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 3, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "grows", kinds[:1], kinds[1:])
    file = tmp_path / "grows.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    with pytest.raises(qglow.MemoryLimitError, match="code takes .*no layer has weights"):
        qglow.load_model(file).save_bundle(tmp_path / "made", isa="cortex-m4", max_flash="100")


def weights_bytes(model: qglow.QuantizedModel, folder: Path, target: str, **limits: str) -> int:
    model.save_bundle(folder, isa=target, **limits)
    return read_manifest(folder).weights_bytes


@pytest.mark.parametrize("target", ["cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33"])
def test_weights_that_a_call_reads_once_take_a_byte(target: str, tmp_path: Path) -> None:
    """Microcontrollers multiply 16 bits; memory holds bytes even so."""
    w = np.random.default_rng(5).normal(size=(64, 128)).astype(np.float32)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("x", 64), ("y", 128))
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "linear", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    model = qglow.load_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    x = np.random.default_rng(6).normal(size=(8, 64)).astype(np.float32)
    made = model.quantize(model.profile({"x": x}), check=False, repair=False)
    # A bias and a multiplier of four bytes a channel lie beside the weights.
    assert w.size <= weights_bytes(made, tmp_path / "made", target) < 1.25 * w.size


@pytest.mark.parametrize("target", ["cortex-m4", "wasm32-simd128"])
def test_little_flash_makes_all_weights_bytes(
    digits: qglow.QuantizedModel, target: str, tmp_path: Path
) -> None:
    needs(target)
    usual = weights_bytes(digits, tmp_path / "usual", target)
    first = read_manifest(tmp_path / "usual")
    limit = str(first.code_bytes + usual - 1024)
    assert weights_bytes(digits, tmp_path / "small", target, max_flash=limit) < 0.7 * usual
    before, after = (load_bundle(tmp_path / name) for name in ("usual", "small"))
    for image in np.random.default_rng(7).uniform(size=(3, 1, 1, 8, 8)).astype(np.float32):
        wanted = before({"input": image})["logits"]
        assert np.array_equal(after({"input": image})["logits"], wanted)
