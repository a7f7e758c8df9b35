"""Models of a few nodes, and the float graph held against onnxruntime on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from qglow.core.types import Array, TensorType
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter

Feeds = Mapping[str, Array]


def tiny_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str | None] | None],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 13,
    input_type: int = TensorProto.FLOAT,
    output_type: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of these nodes. IR version 8, which every onnxruntime reads."""
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(n, input_type, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, output_type, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def save(model: onnx.ModelProto, folder: Path, name: str = "tiny.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def session(model: onnx.ModelProto | Path | bytes, optimize: bool = False) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # no sums that saturate
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    source = str(source) if isinstance(source, Path) else source
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


@cache
def saturates() -> bool:
    """Whether MatMulInteger of onnxruntime has a limit of int16 for sums of two products on this processor.

    That is so for uint8 by int8 on x86-64 with AVX2 and without VNNI, whatever the session asks for.
    """
    ones, most = np.full((1, 8), 255, np.uint8), np.full((8, 1), 127, np.int8)
    product = helper.make_node("MatMulInteger", ["a", "w"], ["y"])
    kinds = {"input_type": TensorProto.UINT8, "output_type": TensorProto.INT32}
    found = session(tiny_model([product], {"a": (1, 8)}, ["y"], {"w": most}, **kinds)).run(None, {"a": ones})
    return int(found[0][0, 0]) != 255 * 127 * 8


def random_feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {v.name: _random(rng, v.type) for v in graph.inputs}


def _random(rng: np.random.Generator, kind: TensorType) -> Array:
    """Normal values, or small indices."""
    values = rng.normal(0, 2, kind.shape) if kind.is_float else rng.integers(0, 5, kind.shape)
    return values.astype(kind.element.dtype)


def assert_close(actual: Array, expected: Array, what: str, tolerance: float = 1e-4) -> None:
    """Errors are relative to max(range, max|y|) of the expected tensor."""
    assert actual.shape == expected.shape, f"{what}: {actual.shape} against {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what}: {actual.dtype} against {expected.dtype}"
    if not expected.size:
        return
    size = max(float(np.ptp(expected)), float(np.abs(expected).max()), 1e-30)
    error = float(np.abs(actual.astype(np.float64) - expected).max()) / size
    assert error <= tolerance, f"{what}: {error:.2e}"


def assert_as_onnxruntime(graph: Graph, path: Path, feeds: Feeds | None = None) -> None:
    feeds = feeds if feeds is not None else random_feeds(graph)
    names = [v.name for v in graph.outputs]
    expected = session(path).run(names, dict(feeds))
    actual = Interpreter(graph).run(feeds)
    for name, array in zip(names, expected, strict=True):
        assert_close(actual[name], array, name)
