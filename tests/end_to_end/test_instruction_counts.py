"""Limits of what emulators count: products an instruction in tiles, instructions of models; bytes of code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.bundles.library import read_library
from qglow.bundles.objects import symbols
from qglow.emulation.bundle import BundleExecutable, load_bundle
from qglow.emulation.machines import EMULATORS
from qglow.emulation.programs import emulator_version
from tests.emulated import counted, needs
from tests.zoo import zoo_path

CALIBRATION = Path(__file__).parents[2] / "calib_data"
SIZE = 64
"""Rows, depth and columns of the product whose instructions are counted, results included."""
LEAST_PRODUCTS = {
    "aarch64": 2.9,
    "aarch64-dotprod": 7.0,
    "aarch64-i8mm": 12.0,
    "armv7": 1.5,
    "riscv64-v": 5.8,
    "cortex-m55": 4.0,
    "cortex-m4": 0.6,
}
"""Multiplications and additions of int8 for each instruction."""
MOST_INSTRUCTIONS = {
    "aarch64": 330_000,
    "armv7": 710_000,
    "riscv64-v": 220_000,
    "aarch64-dotprod": 120_000,
    "aarch64-i8mm": 105_000,
    "cortex-m4": 1_400_000,
    "cortex-m7": 1_400_000,
    "cortex-m33": 1_400_000,
    "cortex-m55": 290_000,
    "cortex-m3": 3_800_000,
    "cortex-m0plus": 7_900_000,
}
"""Limits of one call of the example, a little above what the benchmark of targets counted."""
MOST_IN_FIXED_POINT = {"cortex-m3": 2_800_000, "cortex-m0plus": 6_200_000}
MOST_FOR_SUMS = {
    "float": {"cortex-m3": 2_400_000, "cortex-m0plus": 4_800_000},
    "fixed": {"cortex-m3": 1_500_000, "cortex-m0plus": 3_100_000},
}
"""Limits of one call of `sums`, by the recipe's requantization; with float functions 3.6 and 6.0 million."""
MOST_FOR_BLOCKS = {"riscv64": 2_200_000, "riscv64-v": 280_000, "cortex-m4": 1_150_000}
"""Limits of a product of 16 int8 rows and 256 x 64 weights of 4 bits; with two vectors of columns at once
2.4, 0.32 and 1.5 million."""
MOST_CODE = {"cortex-m4": 14_000, "cortex-m55": 12_000}
"""Bytes of code of the example, a little above those of the benchmark of targets."""
MOST_KEYWORD_INSTRUCTIONS = 6_000_000


@pytest.fixture(scope="module")
def product() -> qglow.QuantizedModel:
    """A product of matrices that takes and gives int8."""
    random = np.random.default_rng(0)
    weights = [random.standard_normal(shape).astype(np.float32) for shape in ((SIZE, SIZE), (SIZE,))]
    constants = [numpy_helper.from_array(w, name) for w, name in zip(weights, ("w", "b"), strict=True)]
    kinds = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in ("x", "y"))
    given, result = kinds
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    graph = helper.make_graph([node], "product", [given], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    data = [{"x": random.standard_normal((SIZE, SIZE)).astype(np.float32)} for _ in range(2)]
    opened = qglow.load_model(model.SerializeToString())
    return opened.quantize(opened.profile(data), io="int8", check=False, repair=False)


@pytest.fixture(scope="module")
def digits() -> qglow.QuantizedModel:
    model = qglow.load_model(CALIBRATION / "digits.onnx")
    profile = model.profile(CALIBRATION / "calib.npz", samples=20)
    return model.quantize(profile, check=False, repair=False)


def sums(requantization: str) -> qglow.QuantizedModel:
    """Two convolutions, their sum, a difference, between floats: what runs without products of its own."""
    random = np.random.default_rng(0)
    shape = [1, 16, 16, 16]
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y"))
    weights = [random.standard_normal((16, 16, 1, 1)).astype(np.float32) for _ in range(2)]
    constants = [numpy_helper.from_array(w, f"w{number}") for number, w in enumerate(weights)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], kernel_shape=[1, 1]),
        helper.make_node("Conv", ["x", "w1"], ["b"], kernel_shape=[1, 1]),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Add", ["s", "b"], ["t"]),
        helper.make_node("Sub", ["t", "a"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "sums", [given], [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    opened = qglow.load_model(model.SerializeToString())
    profile = opened.profile({"x": random.standard_normal((8, *shape[1:])).astype(np.float32)})
    return opened.quantize(profile, check=False, repair=False, requantization=requantization)


def bundle(model: qglow.QuantizedModel, target: str, folder: Path) -> BundleExecutable:
    needs(target)
    model.save_bundle(folder / "made", isa=target)
    return load_bundle(folder / "made")


@pytest.mark.parametrize("target", LEAST_PRODUCTS)
def test_tiles_multiply_as_much_in_an_instruction(
    product: qglow.QuantizedModel, target: str, tmp_path: Path
) -> None:
    found = counted(bundle(product, target, tmp_path))
    assert SIZE**3 / found >= LEAST_PRODUCTS[target]


@pytest.mark.parametrize("target", MOST_FOR_BLOCKS)
def test_products_of_blocks_keep_their_sums_in_registers(target: str, tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)
    given, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, size])
        for name, size in (("x", 256), ("y", 64))
    )
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "blocks", [given], [result], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    opened = qglow.load_model(model.SerializeToString())
    quantized = opened.quantize(weights="int4:32", dynamic=True, check=False)
    assert counted(bundle(quantized, target, tmp_path)) <= MOST_FOR_BLOCKS[target]


@pytest.mark.parametrize("target", MOST_INSTRUCTIONS)
def test_a_call_takes_few_instructions_and_little_code(
    digits: qglow.QuantizedModel, target: str, tmp_path: Path
) -> None:
    made = bundle(digits, target, tmp_path)
    found = counted(made)
    assert 50_000 < found <= MOST_INSTRUCTIONS[target] and found == counted(made)
    assert made.manifest.code_bytes <= MOST_CODE.get(target, made.manifest.code_bytes)


STATIC = """#!/bin/sh
for word; do
    if [ "$word" = -plugin ]; then echo "qemu: unknown option 'plugin'" >&2; exit 1; fi
    if [ "$word" = --version ]; then echo "qemu-aarch64 version 10.0.2"; exit 0; fi
done
exec qemu-aarch64 "$@"
"""


def test_an_emulator_without_plugins_runs_and_does_not_count(
    digits: qglow.QuantizedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian links version 10 of QEMU for programs of Linux statically."""
    needs("aarch64")
    static = tmp_path / "qemu-static"
    static.write_text(STATIC)
    static.chmod(0o755)
    there = EMULATORS["aarch64"]
    monkeypatch.setitem(EMULATORS, "aarch64", replace(there, command=(str(static), *there.command[1:])))
    made = bundle(digits, "aarch64", tmp_path)
    assert made({"input": np.ones((1, 1, 8, 8), np.float32)})["logits"].any()
    assert emulator_version(str(static)) == 10
    with pytest.raises(qglow.UsageError, match="qemu-static takes no plugins"):
        made.instructions()


@pytest.mark.parametrize("target", MOST_IN_FIXED_POINT)
def test_fixed_point_takes_fewer_instructions(target: str, tmp_path: Path) -> None:
    model = qglow.load_model(CALIBRATION / "digits.onnx")
    profile = model.profile(CALIBRATION / "calib.npz", samples=20)
    fixed = model.quantize(profile, check=False, repair=False, requantization="fixed")
    assert 50_000 < counted(bundle(fixed, target, tmp_path)) <= MOST_IN_FIXED_POINT[target]


@pytest.mark.parametrize("requantization", MOST_FOR_SUMS)
@pytest.mark.parametrize("target", MOST_FOR_SUMS["float"])
def test_sums_and_conversions_take_no_float_function(
    target: str, requantization: str, tmp_path: Path
) -> None:
    """The bits are the interpreter's, by integers alone: at the borders to floats, too."""
    model = sums(requantization)
    made = bundle(model, target, tmp_path)
    assert 50_000 < counted(made) <= MOST_FOR_SUMS[requantization][target]
    members = read_library(next((tmp_path / "made").glob("*.a")).read_bytes())
    needed = symbols(members[f"{made.manifest.prefix}_code.o"]).undefined
    assert set(needed) <= {"__aeabi_lmul", "__clzsi2"}
    x = np.random.default_rng(1).standard_normal((1, 16, 16, 16)).astype(np.float32) * 3
    np.testing.assert_array_equal(made({"x": x})["y"], model.compile(isa="reference")({"x": x})["y"])


def test_keyword_spotting_takes_few_instructions(tmp_path: Path) -> None:
    model = qglow.load_model(zoo_path("models/mlperftiny_kws_dscnn.onnx"))
    random = np.random.default_rng(0)
    data = [
        {name: random.standard_normal(kind.shape, np.float32) for name, kind in model.inputs.items()}
        for _ in range(2)
    ]
    int8 = model.quantize(model.profile(data), check=False, repair=False)
    assert counted(bundle(int8, "cortex-m4", tmp_path)) <= MOST_KEYWORD_INSTRUCTIONS
