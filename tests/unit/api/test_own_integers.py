"""Models that are quantized already and leave dimensions open, in the integers that they bring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.api.own_integers import in_own_integers
from qglow.cli.main import main
from qglow.core.types import Array
from qglow.recipe import Recipe
from tests.unit.importer.tiny import save, tiny_model

node = helper.make_node
RANDOM = np.random.default_rng(5)
WEIGHTS = RANDOM.integers(-127, 128, (8, 6)).astype(np.int8)

SUMS = "product.bias: i32"
"""What the text of a graph has where the product adds up integers."""


def quantized(tmp_path: Path, rows: int | str) -> Path:
    """A product of int8 activations and weights, of which the number of rows may be open."""
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xr"]),
        node("DequantizeLinear", ["w", "sw", "zw"], ["wr"]),
        node("MatMul", ["xr", "wr"], ["y"], name="product"),
    ]
    constants = {
        **{"sx": np.array(0.03, np.float32), "zx": np.array(-7, np.int8)},
        **{"w": WEIGHTS, "sw": np.array(0.02, np.float32), "zw": np.array(0, np.int8)},
    }
    return save(tiny_model(nodes, {"x": (1, rows, 8)}, ["y"], constants, opset=17), tmp_path, f"{rows}.onnx")


def sample(rows: int) -> dict[str, Array]:
    return {"x": np.random.default_rng(rows).normal(size=(1, rows, 8)).astype(np.float32)}


def test_programs_of_open_shapes_are_those_of_the_quantized_model(tmp_path: Path) -> None:
    model = qglow.load_model(quantized(tmp_path, "T"))
    own = in_own_integers(model)
    assert isinstance(own, qglow.Model)
    fixed = model.at({"x": (1, 3, 8)}).quantize()
    assert SUMS in fixed.text()
    assert own.at({"x": (1, 3, 8)}).text() == fixed.text() != model.at({"x": (1, 3, 8)}).text()
    program, bounded, other = own.compile(), own.compile(bounds={"T": 16}), fixed.compile()
    for rows in (3, 1, 9):
        wanted = model.at({"x": (1, rows, 8)}).quantize().compile()(sample(rows))["y"]
        for made in (program, bounded, other):
            assert made(sample(rows))["y"].tobytes() == wanted.tobytes(), rows


def test_of_the_recipe_what_is_kept_in_float_applies(tmp_path: Path) -> None:
    own = in_own_integers(qglow.load_model(quantized(tmp_path, "T")), Recipe(keep_float=("product",)))
    assert isinstance(own, qglow.Model)
    assert SUMS not in own.at({"x": (1, 3, 8)}).text()


def test_models_of_one_shape_are_quantized_and_float_ones_stay(tmp_path: Path) -> None:
    assert isinstance(in_own_integers(qglow.load_model(quantized(tmp_path, 4))), qglow.QuantizedModel)
    relu = save(tiny_model([node("Relu", ["x"], ["y"])], {"x": (1, "T", 8)}, ["y"]), tmp_path, "relu.onnx")
    assert np.array_equal(
        in_own_integers(qglow.load_model(relu)).compile()(sample(5))["y"], sample(5)["x"].clip(0)
    )
    fixed = qglow.load_model(relu, shapes={"x": (1, 4, 8)})
    assert in_own_integers(fixed) is fixed


def test_commands_run_them_in_integers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = quantized(tmp_path, "T")
    np.savez(tmp_path / "data.npz", **sample(9))
    assert (
        main(["run", str(path), "--data", str(tmp_path / "data.npz"), "-o", str(tmp_path / "out.npz")]) == 0
    )
    capsys.readouterr()
    wanted = qglow.load_model(path, shapes={"x": (1, 9, 8)}).quantize().compile()(sample(9))["y"]
    assert np.load(tmp_path / "out.npz")["y"].tobytes() == wanted.tobytes()
