"""Calling compiled programs: names, shapes, bound arrays, threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import DataError, UsageError
from qglow.core.types import Quantization, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.ops.elementwise import Relu
from qglow.graph.ops.functions import Sigmoid
from qglow.graph.ops.linear import Gemm
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.runtime.executable import Executable
from qglow.toolchain import CompileOptions, compile_graph

W = np.arange(12, dtype=np.float32).reshape(3, 4) - 6
X = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)


@pytest.fixture(scope="module", params=[None, "reference"], ids=["native", "reference"])
def executable(request: pytest.FixtureRequest) -> Executable:
    builder = GraphBuilder("product")
    x = builder.input("x", float_type(2, 3))
    hidden = builder.node(Gemm(), x, builder.constant("w", W), None, name="hidden")
    graph = builder.finish(builder.node(Relu(), hidden, name="y"))
    return compile_graph(graph, CompileOptions(isa=request.param))


def test_signature(executable: Executable) -> None:
    assert executable.inputs == {"x": float_type(2, 3)}
    assert executable.outputs == {"y": float_type(2, 4)}


def test_call(executable: Executable) -> None:
    np.testing.assert_allclose(executable({"x": X})["y"], np.maximum(X @ W, 0), rtol=1e-6)


def test_inputs_need_not_be_contiguous(executable: Executable) -> None:
    wide = np.repeat(X, 2, axis=1)
    np.testing.assert_array_equal(executable({"x": wide[:, ::2]})["y"], executable({"x": X})["y"])


@pytest.mark.parametrize("inputs", [{}, {"z": X}, {"x": X, "z": X}])
def test_wrong_names_are_refused(executable: Executable, inputs: dict[str, np.ndarray]) -> None:
    with pytest.raises(DataError, match="wanted"):
        executable(inputs)


def test_an_array_without_a_name_is_refused(executable: Executable) -> None:
    with pytest.raises(DataError, match="by name, .* not as ndarray"):
        executable(X)  # type: ignore[arg-type]


def test_wrong_shape_is_refused(executable: Executable) -> None:
    with pytest.raises(DataError, match=r"\(1, 3\).*\(2, 3\)"):
        executable({"x": X[:1]})


def test_wrong_element_type_is_refused(executable: Executable) -> None:
    with pytest.raises(DataError, match="float64"):
        executable({"x": X.astype(np.float64)})


def test_bound_call_reads_and_fills_the_arrays(executable: Executable) -> None:
    x, y = X.copy(), np.zeros((2, 4), np.float32)
    run = executable.bind({"x": x}, {"y": y})
    run()
    np.testing.assert_array_equal(y, executable({"x": X})["y"])
    x *= 2
    run()
    np.testing.assert_array_equal(y, executable({"x": 2 * X})["y"])


def test_bind_refuses_arrays_that_do_not_fit(executable: Executable) -> None:
    with pytest.raises(UsageError, match="'y'"):
        executable.bind({"x": X}, {})
    with pytest.raises(UsageError, match="contiguous"):
        executable.bind({"x": X}, {"y": np.zeros((4, 2), np.float32).T})


def _read_only(folder: Path) -> Iterator[np.ndarray]:
    yield np.frombuffer(bytes(32), np.float32).reshape(2, 4)
    path = folder / "y.npy"
    np.save(path, np.zeros((2, 4), np.float32))
    yield np.load(path, mmap_mode="r")
    frozen = np.zeros((2, 4), np.float32)
    frozen.flags.writeable = False
    yield frozen


def test_bind_writes_into_no_array_that_is_read_only(executable: Executable, tmp_path: Path) -> None:
    for y in _read_only(tmp_path):
        with pytest.raises(UsageError, match="'y' is read-only"):
            executable.bind({"x": X}, {"y": y})
    executable.bind(
        {"x": np.frombuffer(X.tobytes(), np.float32).reshape(2, 3)}, {"y": np.zeros((2, 4), "f4")}
    )


def test_bind_writes_into_no_array_that_it_reads(executable: Executable) -> None:
    memory = np.zeros(14, np.float32)
    x, y = memory[:6].reshape(2, 3), memory[5:13].reshape(2, 4)
    with pytest.raises(UsageError, match="'y' and 'x' share memory"):
        executable.bind({"x": x}, {"y": y})
    executable.bind({"x": x}, {"y": memory[6:].reshape(2, 4)})()


@pytest.mark.parametrize("isa", [None, "reference"])
def test_bound_outputs_lie_apart(isa: str | None) -> None:
    builder = GraphBuilder("two")
    x = builder.input("x", float_type(4))
    graph = builder.finish(builder.node(Relu(), x, name="a"), builder.node(Sigmoid(), x, name="b"))
    executable = compile_graph(graph, CompileOptions(isa=isa))
    a = np.zeros(4, np.float32)
    with pytest.raises(UsageError, match="'b' and 'a' share memory"):
        executable.bind({"x": np.zeros(4, np.float32)}, {"a": a, "b": a})


@pytest.mark.parametrize(
    "y",
    [
        [[0.0] * 4] * 2,
        np.zeros((2, 4), ">f4"),
        np.zeros((2, 4)),
        np.frombuffer(bytearray(33), np.float32, 8, 1).reshape(2, 4),
        np.zeros((2, 8), np.float32)[:, ::2],
    ],
    ids=["list", "byte order", "float64", "unaligned", "strided"],
)
def test_bind_takes_the_exact_type(executable: Executable, y: object) -> None:
    with pytest.raises(UsageError, match="contiguous float32"):
        executable.bind({"x": X}, {"y": y})


def test_bind_takes_no_other_outputs(executable: Executable) -> None:
    y = np.zeros((2, 4), np.float32)
    with pytest.raises(UsageError, match="no output is called 'z'"):
        executable.bind({"x": X}, {"y": y, "z": y.copy()})


@pytest.mark.parametrize("isa", [None, "reference"])
def test_int8_scalars_keep_their_shape(isa: str | None) -> None:
    builder = GraphBuilder("scalar")
    x = builder.input("x", float_type())
    kind = x.type.quantized(Quantization.per_tensor(0.5, 3))
    graph = builder.finish(builder.node(Quantize(), x, output_types=[kind], name="y"))
    executable = compile_graph(graph, CompileOptions(isa=isa))
    found = executable({"x": np.array(2, np.float32)})["y"]
    assert (found.shape, found.dtype, int(found)) == ((), np.int8, 7)


def test_threads_do_not_disturb_each_other(executable: Executable) -> None:
    inputs = [np.full((2, 3), i, np.float32) for i in range(64)]
    expected = [executable({"x": x})["y"] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda x: executable({"x": x})["y"], inputs))
    np.testing.assert_array_equal(actual, expected)


def test_memory_is_told(executable: Executable) -> None:
    assert executable.weight_bytes >= W.nbytes and executable.arena_bytes >= 0
    assert executable.threads == 1 and not executable.state


def test_no_threads_at_all_are_refused() -> None:
    with pytest.raises(UsageError, match="threads is '0'"):
        CompileOptions(threads=0)


@pytest.mark.parametrize("isa", [None, "reference"])
def test_observed_activations_are_those_of_the_graph(isa: str | None) -> None:
    builder = GraphBuilder("observed")
    x = builder.input("x", float_type(2, 3))
    kind = x.type.quantized(Quantization.per_tensor(0.05, -7))
    q = builder.node(Quantize(), x, output_types=[kind], name="q")
    real = builder.node(Dequantize(), q, name="real")
    graph = builder.finish(builder.node(Sigmoid(), real, name="y"))
    observed = compile_graph(graph, CompileOptions(isa=isa, observe=True))
    observed({"x": X})
    activations = observed.activations()
    expected = (np.rint(X / np.float32(0.05)) - 7).astype(np.int8)
    np.testing.assert_array_equal(activations["q"], expected)
    np.testing.assert_allclose(activations["real"], (expected + 7.0) * 0.05, rtol=1e-6)
