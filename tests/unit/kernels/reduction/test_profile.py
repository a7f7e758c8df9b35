"""Profiling kernels count every element once and do not depend on ISA or batch."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.ops.memory import Copy
from qglow.instructions.ops.profile import RecordProfile
from qglow.instructions.program import Program
from tests.runtimes import HOST_ISAS, execute, plan_apart, prepare, reference


def profiled(shape: tuple[int, ...], axis: int | None, padding: tuple[int, int, int, int]) -> Program:
    builder = ProgramBuilder("profile")
    kind = float_type(*shape)
    src = builder.placeholder("src", kind)
    value = builder.activation("value", kind, padding)
    builder.emit("in", Copy(), value, src)
    operands = [
        builder.placeholder("counts", TensorType(ElementType.INT64, (65536,))),
        builder.placeholder("range", float_type(2)),
    ]
    if axis is not None:
        operands.append(builder.placeholder("channel_range", float_type(2, shape[axis])))
        sums = TensorType(ElementType.DOUBLE, (shape[0], shape[axis]))
        operands.append(builder.placeholder("channel_sums", sums))
    builder.emit("profile", RecordProfile(axis), value, *operands)
    return builder.finish()


def empty_state(shape: tuple[int, ...], axis: int | None) -> dict[str, Array]:
    state = {"counts": np.zeros(65536, np.int64), "range": np.array([np.inf, -np.inf], np.float32)}
    if axis is not None:
        state["channel_range"] = np.repeat(state["range"][:, None], shape[axis], axis=1)
    return state


def run(shape: tuple[int, ...], axis: int | None, values: Array, isa: str) -> dict[str, Array]:
    program = prepare(profiled(shape, axis, (1, 0, 0, 2) if len(shape) == 4 else (0, 0, 0, 0)), isa)
    plan_apart(program)
    got = execute(program, isa, {"src": values}, empty_state(shape, axis))
    wanted = reference(program, {"src": values}, empty_state(shape, axis))
    for name, array in wanted.state.items():
        if name == "channel_sums":  # float64, and numpy adds in another order
            np.testing.assert_allclose(got.state[name], array, rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(got.state[name], array, err_msg=f"{name} on {isa}")
    return got.state


def values_of(shape: tuple[int, ...]) -> Array:
    values = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    flat = values.reshape(-1)
    flat[flat < -0.5] = 0.0
    flat[:8] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, np.float32("nan"), -3.5]
    return values


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2, 5, 6, 20), 3), ((2, 3, 5, 7), 1), ((3, 37), 1), ((2, 4, 4, 3), None), ((50,), None)],
)
def test_equal_to_reference_and_on_every_isa(shape: tuple[int, ...], axis: int | None) -> None:
    results = [run(shape, axis, values_of(shape), isa) for isa in HOST_ISAS]
    for other in results[1:]:
        for name, array in results[0].items():
            assert array.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("axis", [1, 3])
def test_sums_of_a_sample_do_not_depend_on_the_batch(axis: int) -> None:
    values = values_of((3, 5, 4, 20))
    whole = run((3, 5, 4, 20), axis, values, HOST_ISAS[-1])
    for sample in range(3):
        alone = run((1, 5, 4, 20), axis, values[sample : sample + 1], HOST_ISAS[-1])
        assert alone["channel_sums"].tobytes() == whole["channel_sums"][sample : sample + 1].tobytes()
