"""Limits of the memory of bundles, to the byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from onnx import TensorProto, helper

import qglow
from qglow.emulation.manifest import read_manifest

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
    """Cortex-M4 multiplies 16 bits: its weights take twice those of the model."""
    with pytest.raises(qglow.MemoryLimitError) as refused:
        digits.save_bundle(tmp_path / "made", isa="cortex-m4", max_flash="50K")
    assert "'dealloc" not in str(refused.value)
    largest = re.search(r"largest weights, ([\d.]+)K", str(refused.value))
    assert largest is not None and float(largest[1]) > 6
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 3, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "grows", kinds[:1], kinds[1:])
    file = tmp_path / "grows.onnx"
    file.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    )
    with pytest.raises(qglow.MemoryLimitError, match="code takes .*no layer has weights"):
        qglow.load_model(file).save_bundle(tmp_path / "made", isa="cortex-m4", max_flash="100")
