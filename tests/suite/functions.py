"""Functions of one variable: tables in int8, polynomials in float."""

from __future__ import annotations

import numpy as np

from qglow.graph.operator import Operator, Table
from qglow.graph.ops.functions import (
    Abs,
    Atan,
    Ceil,
    Cos,
    Elu,
    Erf,
    Exp,
    Floor,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Log,
    Mish,
    Neg,
    PowerOf,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Softplus,
    Sqrt,
    Swish,
)
from tests.suite.problem import Drawing, Maker, Problem

FUNCTIONS: list[Operator] = [
    Abs(),
    Atan(),
    Ceil(),
    Cos(),
    Elu(alpha=1.5),
    Erf(),
    Exp(),
    Floor(),
    Gelu(),
    Gelu(approximate="tanh"),
    HardSigmoid(alpha=0.3, beta=0.4),
    HardSwish(),
    LeakyRelu(alpha=0.1),
    Log(),
    Mish(),
    Neg(),
    PowerOf(exponent=2.0),
    PowerOf(exponent=-1.5),
    Reciprocal(),
    Round(),
    Sign(),
    Sin(),
    Softplus(),
    Sqrt(),
    Swish(),
    Swish(alpha=1.5),
]


def in_float(random: np.random.Generator) -> Problem:
    """Every function of one input."""
    drawing = Drawing("functions_float", random)
    x = drawing.real(2, 3, 7, 5)
    return drawing.finish(*(drawing.builder.node(function, x) for function in FUNCTIONS))


def in_int8(random: np.random.Generator) -> Problem:
    """Every function as a table of one int8 input."""
    drawing = Drawing("functions_int8", random)
    x = drawing.integers(2, 3, 7, 5)
    tables = [function for function in FUNCTIONS if isinstance(function.policy, Table)]
    kinds = [drawing.int8_like(x.type.shape) for _ in tables]
    pairs = zip(tables, kinds, strict=True)
    return drawing.finish(*(drawing.builder.node(f, x, output_types=[kind]) for f, kind in pairs))


PROBLEMS: list[Maker] = [in_float, in_int8]
