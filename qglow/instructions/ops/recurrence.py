"""Steps of recurrent layers.

Definitions: https://onnx.ai/onnx/operators/ GRU, LSTM, RNN
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import ElementType
from qglow.instructions.operation import (
    Arrays,
    Operand,
    Operation,
    Types,
    out,
    read,
    register,
    require,
    scratch,
)
from qglow.instructions.ops.rules import (
    parameters_of,
    require_float,
    require_int8,
    require_rank,
    require_shape,
)
from qglow.numerics.recurrence import Sequences, recur_float, recur_int8
from qglow.numerics.scalar.cells import RecurrentCell


@register
@dataclass(frozen=True)
class RecurrentLayer(RecurrentCell, Operation):
    """dest[t + 1] = hidden states after step t of src[T, N, G * H]; carried = what cells carry at the end.

    dest[0] is `hidden`; in reverse dest[t] follows step t, and dest[T] is `hidden`. float: every product of
    the state is one chain of fused multiply-adds over ascending k, starting from 0. int8: states and filter
    are int8, with int32 sums that `multiplier` turns into float; all else is float.
    """

    opcode: ClassVar[str] = "recurrent"
    signature: ClassVar[tuple[Operand, ...]] = (
        out(),
        out("carried"),
        read(),
        read("filter"),
        read("hidden"),
        read("initial"),
        read("bias", optional=True),
        read("peepholes", optional=True),
        read("lengths", optional=True),
        read("multiplier", optional=True),
        scratch(),
    )

    def verify(self, types: Types) -> None:
        """Shapes of T steps, N sequences and H states; int8 states, filter and result, or none of them."""
        fault = self.fault()
        require(fault is None, str(fault))
        require_rank(types, 3, "src", "dest")
        require_rank(types, 2, "hidden")
        require_float(types, "src", "carried", "initial", "bias", "peepholes", "multiplier")
        (steps, batch, _), width = types["src"].shape, types["hidden"].shape[1]
        columns = self.gates * width
        require_shape(types, "src", (steps, batch, columns), "all gates of hidden")
        require_shape(types, "filter", (width, columns), "all gates of hidden")
        require_shape(types, "dest", (steps + 1, batch, width), "the first state and one a step")
        for name in ("hidden", "carried", "initial"):
            require_shape(types, name, (batch, width), "states of every sequence")
        for name, shape in (("bias", width), ("peepholes", 3 * width), ("multiplier", columns)):
            if name in types:
                require_shape(types, name, (shape,), "one a state or column")
        if "lengths" in types:
            require_shape(types, "lengths", (batch,), "one a sequence")
            require(types["lengths"].element is ElementType.INT32, f"lengths is {types['lengths']}, not i32")
        if types["hidden"].is_float:
            require_float(types, "dest", "filter")
            require("multiplier" not in types, "floats have no multiplier")
            return
        require_int8(types, "hidden", "dest")
        require(types["filter"].element is ElementType.INT8, f"filter is {types['filter']}, not int8")
        require("multiplier" in types, "int8 needs a multiplier")
        same = types["hidden"].quantization == types["dest"].quantization
        require(same, "hidden and dest differ in their parameters")

    def execute(self, arrays: Arrays, types: Types) -> None:
        """Compute with numerics.recurrence."""
        names = ("src", "hidden", "initial", "bias", "peepholes", "lengths")
        sequences = Sequences(*(arrays.get(name) for name in names))  # type: ignore[arg-type]
        filters = arrays["filter"]
        if types["hidden"].is_float:
            states, carried = recur_float(self, filters, sequences)
        else:
            parameters = parameters_of(types["hidden"])
            states, carried = recur_int8(self, filters, arrays["multiplier"], parameters, sequences)
        arrays["dest"][...], arrays["carried"][...] = states, carried
