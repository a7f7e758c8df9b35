"""Functions of one variable, float32: one operation for each scalar function of numerics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.instructions.operation import Arrays, Operand, Operation, Types, out, read, register, require
from qglow.instructions.ops.rules import require_float, require_shape
from qglow.numerics.scalar.arrays import evaluate
from qglow.numerics.scalar.function import SCALAR_FUNCTIONS, ScalarFunction


@dataclass(frozen=True)
class Function(Operation, ScalarFunction):
    """dest = the function of src, float32; attributes are the function's settings."""

    signature: ClassVar[tuple[Operand, ...]] = (out(strided=True), read(strided=True))
    in_place: ClassVar[tuple[tuple[str, str], ...]] = (("dest", "src"),)
    data_parallel: ClassVar[bool] = True

    def verify(self, types: Types) -> None:
        """Known settings, floats of one shape."""
        fault = self.fault()
        require(fault is None, str(fault))
        require_float(types, "dest", "src")
        require_shape(types, "src", types["dest"].shape, "that of dest")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """The float32 meaning."""
        arrays["dest"][...] = evaluate(self.real, arrays["src"])


def _operation(function: type[ScalarFunction]) -> type[Operation]:
    """The operation of a function, named like it."""
    members = {"__doc__": f"dest = {function.__doc__}", "__module__": __name__}
    return dataclass(frozen=True)(type(function.__name__, (Function, function), members))


FUNCTIONS = {opcode: register(_operation(function)) for opcode, function in SCALAR_FUNCTIONS.items()}
"""The operation of every scalar function, by opcode."""
