"""Recurrent layers of one direction. https://onnx.ai/onnx/operators/ GRU, LSTM, RNN

The product with the input is a product of its own, of all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from qglow.core.types import Array, ElementType, TensorType, float_type
from qglow.graph.axes import AxisEffect
from qglow.graph.operator import Operator, Policy, Recur, register, require
from qglow.graph.ops.rules import Arrays, Types, float_operand, given, optional, parameters_of, vector_operand
from qglow.numerics.recurrence import Sequences, recur_float, recur_int8, state_factors
from qglow.numerics.scalar.cells import RecurrentCell


@register
@dataclass(frozen=True)
class Recurrence(RecurrentCell, Operator):
    """Steps of an LSTM, a GRU or a plain recurrent layer.

    given: sums of G gates from the input and biases, [T, N, G * H]. w: weights of the state, [H, G * H].
    hidden: first hidden states, [N, H]. carried: what cells carry at first, [N, H]; for a GRU or a plain
    layer that is `hidden` in float. bias: [H], of a GRU with `linear_before_reset`. peepholes: [3 * H], of
    an LSTM. lengths: int32 [N].

    The results are all hidden states, [T + 1, N, H], the first ones included, and what is carried at the
    end, [N, H]. Its int8 form has int8 weights, and hidden states with the parameters of the result; all
    else is float.
    """

    name: ClassVar[str] = "Recurrence"
    operands: ClassVar[tuple[str, ...]] = (
        "given",
        "w",
        "hidden",
        "carried",
        "bias?",
        "peepholes?",
        "lengths?",
    )
    policy: ClassVar[Policy] = Recur()
    plain_operands: ClassVar[tuple[str, ...]] = ("given", "w", "carried", "bias", "peepholes", "lengths")

    @property
    def recurrent_cell(self) -> RecurrentCell:
        """Its own settings."""
        return self

    def infer(self, inputs: Types) -> tuple[TensorType, ...]:
        """[T + 1, N, H] and [N, H]."""
        fault = self.fault()
        require(fault is None, str(fault))
        sums, w = float_operand(inputs, 0, "given", 3), float_operand(inputs, 1, "w", 2)
        hidden, carried = float_operand(inputs, 2, "hidden", 2), float_operand(inputs, 3, "carried", 2)
        (steps, batch, columns), width = sums.shape, hidden.shape[1]
        require(columns == self.gates * width, f"given {sums} does not hold {self.gates} gates of {width}")
        require(w.shape == (width, columns), f"w is {w}, it must be <{width} x {columns}>")
        for name, kind in (("hidden", hidden), ("carried", carried)):
            require(kind.shape == (batch, width), f"{name} is {kind}, it must be <{batch} x {width}>")
        for index, name, length, allowed in (
            (4, "bias", width, self.cell == "gru" and self.linear_before_reset),
            (5, "peepholes", 3 * width, self.cell == "lstm"),
        ):
            if index < len(inputs) and inputs[index] is not None:
                require(allowed, f"{self.cell} has no {name}")
                vector_operand(inputs, index, name, length)
        lengths = inputs[6] if len(inputs) > 6 else None
        fits = lengths is None or lengths == TensorType(ElementType.INT32, (batch,))
        require(fits, f"lengths is {lengths}, it must be i32<{batch}>")
        return float_type(steps + 1, batch, width), float_type(batch, width)

    def axis_effect(self, index: int, axis: int, inputs: Types) -> AxisEffect | None:
        """Sequences are apart; steps count as far as `lengths` says, and give one state more."""
        sums, ends = self.place_of("given"), self.place_of("lengths")
        beside = [self.place_of(name) for name in ("hidden", "carried", "lengths")]
        if (axis == 1 and index == sums) or (axis == 0 and index in beside):
            return AxisEffect(1, others=(0,))
        if axis == 0 and index == sums and len(inputs) > ends and inputs[ends] is not None:
            return AxisEffect(0, added=0, others=(None,))
        return None

    def evaluate(self, inputs: Arrays) -> tuple[Array, ...]:
        """Compute with numerics.recurrence."""
        return recur_float(self, given(inputs, 1), _sequences(inputs))

    def evaluate_quantized(
        self, inputs: Arrays, input_types: Types, output_types: Sequence[TensorType]
    ) -> tuple[Array, ...]:
        """Compute with numerics.recurrence: int8 products, float gates."""
        w_quant, h_quant = parameters_of(input_types, 1), output_types[0].quantization
        if w_quant is None or h_quant is None:
            return super().evaluate_quantized(inputs, input_types, output_types)
        w = given(inputs, 1)
        return recur_int8(self, w, state_factors(h_quant, w_quant, w.shape[1]), h_quant, _sequences(inputs))


def _sequences(inputs: Arrays) -> Sequences:
    return Sequences(
        given(inputs, 0), given(inputs, 2), given(inputs, 3), *(optional(inputs, i) for i in (4, 5, 6))
    )
