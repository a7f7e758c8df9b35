"""Kept states of programs whose inputs and outputs are integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qglow.core.errors import UsageError
from qglow.core.types import Quantization, TensorType, float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.ops.elementwise import Add
from qglow.graph.ops.quantize import Dequantize, Quantize
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import StreamingExecutable
from qglow.toolchain import CompileOptions, compile_graph

STEP, ZERO = 0.5, 7
HELD = float_type(2, 3).quantized(Quantization.per_tensor(STEP, ZERO))


def sums(kind: TensorType, written: Quantization | None = None, isa: str | None = None) -> Executable:
    """A program of y = next = x + s, of which s and next are integers."""
    builder = GraphBuilder("sums")
    x = builder.input("x", float_type(2, 3))
    state = builder.input("s", kind)
    total = builder.node(Add(), x, builder.node(Dequantize(), state, name="real"), name="y")
    given = kind if written is None else kind.quantized(written)
    kept = builder.node(Quantize(), total, output_types=[given], name="next")
    return compile_graph(builder.finish(total, kept), CompileOptions(isa=isa))


@pytest.mark.parametrize("isa", [None, "reference"])
def test_integer_states_begin_with_their_zero_point(isa: str | None) -> None:
    program = StreamingExecutable(sums(HELD, isa=isa), {"s": "next"})
    assert np.all(program.state["s"] == ZERO) and program.state["s"].dtype == np.int8
    x = np.array([[1, -2, 3], [0.5, 0, -1]], np.float32)
    np.testing.assert_array_equal(program({"x": x})["y"], x)
    np.testing.assert_array_equal(program({"x": x})["y"], 2 * x)
    np.testing.assert_array_equal(program.state["s"], ZERO + 2 * x / STEP)
    y = np.zeros_like(x)
    run = program.bind({"x": x}, {"y": y})
    run()
    run()
    np.testing.assert_array_equal(y, 4 * x)
    np.testing.assert_array_equal(program.state["s"], ZERO + 4 * x / STEP)


def test_unsigned_states_are_unsigned_for_callers() -> None:
    unsigned = replace(HELD, unsigned=True)
    plain = sums(HELD)
    kinds = {"x": float_type(2, 3), "s": unsigned}, {"y": float_type(2, 3), "next": unsigned}
    plain._signature = replace(plain._signature, inputs=kinds[0], outputs=kinds[1])
    program = StreamingExecutable(plain, {"s": "next"})
    assert np.all(program.state["s"] == ZERO + 128) and program.state["s"].dtype == np.uint8
    x, y = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    program({"x": x})
    assert np.all(program.state["s"] == ZERO + 128 + 2)
    program.bind({"x": x}, {"y": y})()
    assert np.all(y == 2) and np.all(program.state["s"] == ZERO + 128 + 4)


def test_states_of_other_scales_are_refused() -> None:
    program = sums(HELD, Quantization.per_tensor(STEP, ZERO + 1))
    with pytest.raises(UsageError, match=r"i8\[S:0.5 O:7\]<2 x 3>.*i8\[S:0.5 O:8\]<2 x 3>"):
        StreamingExecutable(program, {"s": "next"})
