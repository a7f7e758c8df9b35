"""Outputs that nothing computes: a constant of the model, beside one that an int8 node gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper

from tests.end_to_end.conftest import Run
from tests.unit.importer.tiny import save, tiny_model


def test_an_output_that_is_a_constant_goes_through_every_command(run: Run, tmp_path: Path) -> None:
    weights = {"w": np.eye(4, dtype=np.float32), "c": np.arange(4, dtype=np.float32)[None]}
    model = save(
        tiny_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 4]}, ["y", "c"], weights),
        tmp_path,
    )
    data, profile, out = tmp_path / "x.npy", tmp_path / "p.yaml", tmp_path / "out"
    np.save(data, np.random.default_rng(2).normal(size=(8, 4)).astype(np.float32))
    assert run("profile", model, "--data", data, "-o", profile) == 0
    assert run("quantize", "--profile", profile, "-o", out) == 0
    assert run("compile", out, "-o", tmp_path / "m.qglow") == 0
    for subject in (model, out, tmp_path / "m.qglow"):
        made = tmp_path / f"{subject.name}.npz"
        assert run("run", subject, "--data", data, "-o", made) == 0
        with np.load(made) as found:
            np.testing.assert_allclose(found["c"].reshape(-1, 4)[0], weights["c"][0], atol=0.02)
            np.testing.assert_allclose(found["y"], np.load(data), atol=0.05)
