"""qglow compile --tune: measures, says what it found, and leaves a program with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.cli.main import main
from tests.runtimes import PLAIN
from tests.unit.importer.tiny import save, tiny_model

Capture = pytest.CaptureFixture[str]


def test_tuned_programs_give_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))
    weights = np.random.default_rng(0).standard_normal((20, 12)).astype(np.float32)
    model = tiny_model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [6, 20]}, ["y"], {"w": weights})
    path, x = save(model, tmp_path), {"x": np.ones((6, 20), np.float32)}
    programs = [str(tmp_path / name) for name in ("plain.qglow", "tuned.qglow", "again.qglow")]
    words = ["--isa", PLAIN, "-o"]
    assert main(["compile", str(path), *words, programs[0]]) == 0
    assert main(["compile", str(path), "--tune", *words, programs[1]]) == 0
    said = capsys.readouterr()
    assert "kernels for 1 shapes measured" in said.out and "measuring" in said.err
    assert main(["compile", str(path), "--tune", *words, programs[2]]) == 0
    assert Path(programs[1]).read_bytes() == Path(programs[2]).read_bytes()
    results = [qglow.load(program, isa=PLAIN, trust=True)(x)["y"] for program in programs]
    assert all(np.array_equal(result, results[0]) for result in results)
