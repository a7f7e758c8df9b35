"""Functions of one variable, powers, choices and casts give the bits of numpy on every ISA."""

from __future__ import annotations

import numpy as np
import pytest

from qglow.core.types import ElementType, TensorType, float_type
from qglow.instructions.builder import ProgramBuilder
from qglow.instructions.operation import OPERATIONS, Operation
from qglow.instructions.ops import functions
from qglow.instructions.ops.elementwise import ElementAdd, ElementDiv, ElementPower
from qglow.instructions.ops.logic import Cast, Compare
from qglow.instructions.ops.selection import ElementMax, ElementMin
from qglow.numerics.logic import RELATIONS
from tests.runtimes import assert_same_bits
from tests.unit.kernels.elementwise.test_elementwise import SPECIAL, int8_type

PATTERNS = np.arange(0, 2**32, 2**32 // 5000 + 7, dtype=np.uint64).astype(np.uint32).view(np.float32)
VALUES = np.concatenate([SPECIAL, PATTERNS, np.linspace(-110, 110, 901, dtype=np.float32)])
PLAIN = [e for e in ElementType if not TensorType(e, ()).is_half]
FUNCTIONS: list[Operation] = [
    *(cls() for cls in OPERATIONS.values() if issubclass(cls, functions.Function)),
    functions.FUNCTIONS["gelu"](approximate="tanh"),
    functions.FUNCTIONS["swish"](1.5),
    functions.FUNCTIONS["roundto"]("bfloat16"),
    *(functions.FUNCTIONS["powerof"](exponent) for exponent in (1.0, 2.0, 3.0, 0.25, 0.5, 0.75, -1.0, 1.7)),
]


def test_functions() -> None:
    """All of them over every kind of float, denormals and NaN among them."""
    builder = ProgramBuilder("functions")
    kind = float_type(VALUES.size)
    src = builder.placeholder("src", kind)
    for index, operation in enumerate(FUNCTIONS):
        builder.emit(f"op{index}", operation, builder.placeholder(f"dest{index}", kind), src)
    assert_same_bits(builder.finish(), {"src": VALUES})


@pytest.mark.parametrize("operation", [ElementPower(), ElementDiv(lo=-1.0), ElementMax(), ElementMin()])
def test_pairs_of_special_values(operation: Operation) -> None:
    wholes = np.array([1, 2, 3, -3, 1e7, 8388609.0, 16777216.0, -16777215.0], np.float32)
    some = np.concatenate([SPECIAL, wholes, PATTERNS[::100]])
    lhs, rhs = (grid.reshape(-1).copy() for grid in np.meshgrid(some, some))
    builder = ProgramBuilder("pairs")
    kind = float_type(lhs.size)
    sources = [builder.placeholder(name, kind) for name in ("lhs", "rhs")]
    builder.emit("op", operation, builder.placeholder("dest", kind), *sources)
    assert_same_bits(builder.finish(), {"lhs": lhs, "rhs": rhs})


@pytest.mark.parametrize("cls", [ElementDiv, ElementPower, ElementMax, ElementMin])
@pytest.mark.parametrize("zeros", [(0, 0, 0), (-128, 127, 3)])
def test_int8_pairs(cls: type[Operation], zeros: tuple[int, ...]) -> None:
    every = np.arange(-128, 128, dtype=np.int8)
    lhs, rhs = (grid.reshape(-1).copy() for grid in np.meshgrid(every, every[::7]))
    kinds = [int8_type(lhs.shape, s, z) for s, z in zip((0.1, 0.05, 0.02), zeros, strict=True)]
    builder = ProgramBuilder("pairs")
    sources = [builder.placeholder(n, k) for n, k in zip(("lhs", "rhs"), kinds, strict=False)]
    builder.emit("op", cls(), builder.placeholder("dest", kinds[2]), *sources)
    assert_same_bits(builder.finish(), {"lhs": lhs, "rhs": rhs})


@pytest.mark.parametrize("target", [e for e in PLAIN if e is not ElementType.FLOAT])
def test_casts_to_and_fro(target: ElementType) -> None:
    builder = ProgramBuilder("casts")
    kind, other = float_type(VALUES.size), TensorType(target, VALUES.shape)
    src, there = builder.placeholder("src", kind), builder.placeholder("there", other)
    builder.emit("there", Cast(), there, src)
    for element in PLAIN:
        back = builder.placeholder(f"back_{element.value}", TensorType(element, VALUES.shape))
        builder.emit(back.name + "_op", Cast(), back, there)
    large = np.array([2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 127.5, -128.5, 2147483520.0], np.float32)
    values = VALUES.copy()
    values[: large.size] = large
    assert_same_bits(builder.finish(), {"src": values})


def test_relations_of_special_values() -> None:
    builder = ProgramBuilder("relations")
    lhs, rhs = (grid.reshape(-1).copy() for grid in np.meshgrid(SPECIAL, SPECIAL))
    sources = [builder.placeholder(name, float_type(lhs.size)) for name in ("lhs", "rhs")]
    for relation in RELATIONS:
        dest = builder.placeholder(relation, TensorType(ElementType.BOOL, lhs.shape))
        builder.emit(relation + "_op", Compare(relation=relation), dest, *sources)
    assert_same_bits(builder.finish(), {"lhs": lhs, "rhs": rhs})


@pytest.mark.parametrize("shape", [(2, 3, 5, 40), (2, 3, 5, 1), (1, 3, 1, 40), (1, 1, 1, 1), (2, 1, 5, 40)])
def test_an_operand_repeats_along_axes_of_one(shape: tuple[int, ...]) -> None:
    """Also where it is a part of a larger buffer."""
    rng = np.random.default_rng(1)
    full, wide = float_type(2, 3, 5, 40), float_type(*shape[:3], shape[3] + 7)
    builder = ProgramBuilder("spread")
    lhs, rhs = builder.placeholder("lhs", full), builder.placeholder("rhs", wide)
    part = builder.view("part", rhs, float_type(*shape), (0, 0, 0, 3))
    builder.emit("op", ElementAdd(), builder.placeholder("dest", full), lhs, part)
    builder.emit("po", ElementAdd(), builder.placeholder("tsed", full), part, lhs)
    data = {n: rng.standard_normal(k.shape).astype(np.float32) for n, k in (("lhs", full), ("rhs", wide))}
    assert_same_bits(builder.finish(), data)
