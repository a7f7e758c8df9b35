"""Models above 2 GB: their weights are in a file beside them, and are in memory once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

WIDTH, LAYERS, STEP = 4096, 36, 4096
"""36 matrices of 64 MiB, each 4 KiB further on in one file than the one before: 2.4 GB, all different."""
IMPORT = """
import resource, sys
import qglow
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
model = qglow.load_model(sys.argv[1])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
weights = [value.data for node in model.graph.nodes for value in node.inputs if value and value.is_constant]
print(len(weights), sum(array.nbytes for array in weights), 1024 * (after - before))
"""


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
        nodes.append(helper.make_node("MatMul", [f"x{layer}", weight.name], [f"x{layer + 1}"]))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, WIDTH]) for n in ("x0", f"x{LAYERS}")]
    graph = helper.make_graph(nodes, "large", ends[:1], ends[1:], weights)
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.slow
def test_weights_above_2_gb_are_in_memory_once(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", IMPORT, str(large_model(tmp_path))], check=True, capture_output=True, text=True
    )
    count, held, taken = map(int, found.stdout.split())
    assert count == LAYERS and held == 4 * WIDTH * WIDTH * LAYERS > 2**31
    assert taken <= 1.2 * held, f"{taken / held:.2f} times the weights"
