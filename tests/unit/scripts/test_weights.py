"""Tables of weights in few bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import blocks, weights
from tests.unit.importer.tiny import save, tiny_model


def test_a_row_a_format_and_float32_first(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gather", ["words", "t"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
    random = np.random.default_rng(0)
    constants = {
        "words": random.normal(size=(20, 32)).astype(np.float32),
        "w": random.normal(size=(32, 20)).astype(np.float32),
    }
    kind = onnx.TensorProto.INT64
    path = save(tiny_model(nodes, {"t": ["N", 6]}, ["y"], constants, input_type=kind), tmp_path)
    tokens = random.integers(0, 20, size=(5, 6))
    np.savez(tmp_path / "data.npz", t=tokens)
    rows = weights.measure(path, {"t": (1, 6)}, tokens, tmp_path / "data.npz")
    names = [f"`{name}`" for name in weights.FORMATS] + [f"`{name}`, dynamic" for name in weights.DYNAMIC]
    names += [f"`{name}`, gptq" for name in weights.LEARNED]
    names += [f"`{name}`, tables too, gptq" for name in weights.TABLES_TOO]
    titles = [cells[0] for cells in rows if not cells[0].startswith("onnxruntime, ")]
    mixed = titles[len(names) + 1 :]
    assert titles[: len(names) + 1] == ["float32", *names]
    assert len(mixed) == 2 * len(weights.MIXED) and all(title.startswith("mixed, ") for title in mixed)
    assert [title.endswith(", gptq") for title in mixed] == [False, True] * len(weights.MIXED)
    assert rows[0][1] == "32.00" and rows[0][3] == "100.0%" and not rows[0][4]
    bits = {cells[0]: cells[1] for cells in rows}
    assert (bits["`int4`"], bits["`int4:float16`"], bits["`int8`"]) == ("5.25", "4.75", "9.25")
    decibels = {cells[0]: float(cells[4].split()[0]) for cells in rows[1:]}
    assert decibels["`int8`"] > decibels["`int4`"] > decibels["`int2:16`"]


def test_both_run_the_same_product(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--sizes", "64", "--rows", "1", "2", "--bits", "4", "8", "--alternations", "2"]
    assert run(blocks.BENCHMARK, options) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert len(lines) == 6 and "| 64 x 64 | 4 |" in lines[2]
    times = {"qglow": 2.0, "qglow dynamic": 4.0, "0": 3.0, "4": 1.0}
    assert blocks.row(1, 8, 4, times)[-2:] == ("1.50", "0.25")
