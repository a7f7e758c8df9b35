"""Models above 2 GB: their weights are in a file beside them, and are in memory once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

WIDTH, LAYERS, STEP = 4096, 36, 6 << 20
"""36 matrices of 64 MiB, each 6 MiB further on in one file of 274 MiB than the one before: 2.4 GB."""
FACTS = """
import re, sys
import qglow
def own():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
"""
IMPORT = (
    FACTS
    + """
before = own()
model = qglow.load_model(sys.argv[1])
weights = [value.data for node in model.graph.nodes for value in node.inputs if value and value.is_constant]
print(len(weights), sum(array.nbytes for array in weights), own() - before)
"""
)
EXPORT = (
    FACTS
    + """
model = qglow.load_model(sys.argv[1]).quantize(weights="int8", keep_float=["re:first.*"], check=False)
model.export_qdq(sys.argv[2])
again = qglow.load_model(sys.argv[2])
weights = [value.data for node in again.graph.nodes for value in node.inputs if value and value.is_constant]
print(len(weights), sum(array.nbytes for array in weights), 0)
"""
)


def large_model(folder: Path) -> Path:
    """A chain of products with weights in one external file, parts of which all of them share."""
    size = 4 * WIDTH * WIDTH
    with (folder / "weights.bin").open("wb") as stream:
        stream.write(np.random.default_rng(0).standard_normal(size // 4, np.float32).tobytes())
        stream.write(bytes(STEP * LAYERS))
    nodes, weights = [], []
    for layer in range(LAYERS):
        weight = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "weights.bin"), ("offset", layer * STEP), ("length", size)):
            weight.external_data.add(key=key, value=str(value))
        weights.append(weight)
        name = "last" if layer == LAYERS - 1 else f"first{layer}"
        nodes.append(helper.make_node("MatMul", [f"x{layer}", weight.name], [f"x{layer + 1}"], name))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, WIDTH]) for n in ("x0", f"x{LAYERS}")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def printed(code: str, *words: Path) -> list[int]:
    """The numbers that a process of its own prints."""
    command = [sys.executable, "-c", code, *map(str, words)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return list(map(int, found.stdout.split()))


@pytest.mark.slow
def test_weights_above_2_gb_are_mapped(tmp_path: Path) -> None:
    count, held, taken = printed(IMPORT, large_model(tmp_path))
    assert count == LAYERS and held == 4 * WIDTH * WIDTH * LAYERS > 2**31
    assert taken <= 0.1 * held, f"{taken / held:.2f} times the weights"


@pytest.mark.slow
def test_weights_above_2_gb_are_written(tmp_path: Path) -> None:
    count, held, _ = printed(EXPORT, large_model(tmp_path), tmp_path / "model.qdq.onnx")
    layer = 4 * WIDTH * WIDTH
    assert count >= LAYERS and (LAYERS - 1) * layer > 2**31 and (LAYERS - 1) * layer < held < LAYERS * layer
    assert (tmp_path / "model.qdq.onnx").stat().st_size < 1 << 20
