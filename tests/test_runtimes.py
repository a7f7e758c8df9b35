"""The problem suite on every runtime: graph interpreter, arena interpreter, compiled code per ISA.

The graph interpreter is held to `numerics` by unit tests; here each further runtime is held to
the one before it. int8 is equal in every bit. Floats are too, but for chains of fused
multiply-adds, which the numpy interpreters compute with another rounding.
"""

from __future__ import annotations

import numpy as np
import pytest

from qglow.graph.interpreter import Interpreter
from qglow.graph.verifier import verify_graph
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.lowering import lower
from tests.fuzzing import seed_of
from tests.runtimes import HOST_ISAS, NATIVE_ISAS, assert_same_bits, compare, machine, run_compiled
from tests.suite import (
    attention,
    blocks,
    control,
    conv,
    elementwise,
    experts,
    fixed_point,
    functions,
    half,
    integers,
    linear,
    movement,
    normalization,
    opaque,
    pool,
    ranking,
    recurrence,
    reduce,
    resize,
    rows,
    selection,
    tables,
    transposed,
    wide,
)
from tests.suite.problem import Maker, Problem

FLOAT_TOLERANCE = 1e-5
FAMILIES = {
    "attention": attention,
    "blocks": blocks,
    "control": control,
    "conv": conv,
    "linear": linear,
    "pool": pool,
    "elementwise": elementwise,
    "experts": experts,
    "fixedpoint": fixed_point,
    "functions": functions,
    "half": half,
    "integers": integers,
    "movement": movement,
    "normalization": normalization,
    "opaque": opaque,
    "ranking": ranking,
    "recurrence": recurrence,
    "reduce": reduce,
    "resize": resize,
    "rows": rows,
    "selection": selection,
    "tables": tables,
    "transposed": transposed,
    "wide": wide,
}
MAKERS = [
    (f"{family}-{i}", make) for family, module in FAMILIES.items() for i, make in enumerate(module.PROBLEMS)
]
PORTABLE_EACH = 3
"""The portable target takes one of so many problems: the emulated targets share its kernels and take all."""
WITH_FMA = [name for name in HOST_ISAS if machine(name).has_fma]


def draw(name: str, make: Maker) -> Problem:
    """Draw the problem of this name; the same one in every run, unless fuzzing."""
    return make(np.random.default_rng(seed_of(name)))


@pytest.mark.parametrize(("name", "make"), MAKERS, ids=[name for name, _ in MAKERS])
def test_lowered_program_equals_graph(name: str, make: Maker) -> None:
    """Lowering, IR passes and the memory plan change nothing."""
    problem = draw(name, make)
    verify_graph(problem.graph, "as drawn")
    expected = Interpreter(problem.graph).run(problem.inputs)
    program = lower(problem.graph)
    optimize(program)
    plan_memory(program)
    actual = ArenaInterpreter(program).run(problem.inputs)
    tolerance = 0.0 if problem.exact else FLOAT_TOLERANCE
    for output, wanted in expected.items():
        compare(actual[output], wanted, f"{problem.name}: {output}", tolerance)


@pytest.mark.parametrize(("name", "make"), MAKERS, ids=[name for name, _ in MAKERS])
def test_compiled_program_equals_interpreter(name: str, make: Maker) -> None:
    """Every buffer of the compiled program, on every ISA that the host has."""
    is_portable = int(name.rpartition("-")[2]) % PORTABLE_EACH == 0
    problem = draw(name, make)
    program = lower(problem.graph)
    optimize(program)
    tolerance = 0.0 if problem.exact else FLOAT_TOLERANCE
    isas = HOST_ISAS if is_portable else NATIVE_ISAS
    assert_same_bits(program, problem.inputs, isas, tolerance=tolerance)


@pytest.mark.skipif(len(WITH_FMA) < 2, reason="the host has no two ISAs with fused multiply-add")
@pytest.mark.parametrize("family", ["attention", "conv", "experts", "linear", "recurrence"])
def test_float_bits_do_not_depend_on_isa(family: str) -> None:
    """Float convolutions and matrix products are one chain of fused multiply-adds an output."""
    for name, make in MAKERS:
        problem = draw(name, make)
        if not name.startswith(family) or problem.exact:
            continue
        program = lower(problem.graph)
        optimize(program)
        first, *others = (run_compiled(program, isa, problem.inputs) for isa in WITH_FMA)
        for other in others:
            for output, wanted in first.items():
                compare(other[output], wanted, f"{problem.name}: {output}")
