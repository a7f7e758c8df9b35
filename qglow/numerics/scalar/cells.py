"""Cells of recurrent layers: one element of one step. https://onnx.ai/onnx/operators/ GRU, LSTM, RNN

A cell reads sums of its gates, from the input and from the state before, and what it carries from step to
step: an LSTM its content c, the others the hidden state itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from qglow.numerics.scalar import polynomials
from qglow.numerics.scalar.activations import Elu, HardSigmoid, LeakyRelu
from qglow.numerics.scalar.algebra import Real, select
from qglow.numerics.scalar.clamps import clip, magnitude


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation by its meaning, and the defaults of alpha and beta, as far as it has them."""

    meaning: Callable[..., Real]
    numbers: tuple[float, ...] = ()


ACTIVATIONS: dict[str, Activation] = {
    "affine": Activation(lambda x, alpha, beta: x * alpha + beta, (1.0, 0.0)),
    "elu": Activation(lambda x, alpha: Elu(alpha).real(x), (1.0,)),
    "hardsigmoid": Activation(lambda x, alpha, beta: HardSigmoid(alpha, beta).real(x), (0.2, 0.5)),
    "leakyrelu": Activation(lambda x, alpha: LeakyRelu(alpha).real(x), (0.01,)),
    "relu": Activation(lambda x: clip(x, 0.0)),
    "scaledtanh": Activation(lambda x, alpha, beta: polynomials.tanh(x * beta) * alpha, (1.0, 1.0)),
    "sigmoid": Activation(polynomials.sigmoid),
    "softplus": Activation(polynomials.softplus),
    "softsign": Activation(lambda x: x / (magnitude(x) + 1.0)),
    "tanh": Activation(polynomials.tanh),
    "thresholdedrelu": Activation(lambda x, alpha: select(x > alpha, x, 0.0), (1.0,)),
}
"""Activations of cells by ONNX's name in lower case."""


@dataclass(frozen=True)
class RecurrentCell:
    """Settings of a recurrent layer of one direction, and the meaning of its cell.

    `cell` is "lstm" (gates: input, output, forget, content), "gru" (update, reset, new state) or "rnn" (one).
    `activations`: those of gates first, as ONNX orders them. `numbers`: alpha and beta of each activation, as
    far as it has them. `reverse`: the last step comes first. `clip`: bound of the magnitude of what
    activations of gates read, 0 for none. `input_forget`: an LSTM forgets what its input gate leaves.
    `linear_before_reset`: a GRU resets the product of the state, with its bias, and not the state.
    """

    GATES: ClassVar[dict[str, int]] = {"gru": 3, "lstm": 4, "rnn": 1}
    FUNCTIONS: ClassVar[dict[str, int]] = {"gru": 2, "lstm": 3, "rnn": 1}

    cell: str
    activations: tuple[str, ...]
    numbers: tuple[tuple[float, ...], ...] = ()
    reverse: bool = False
    clip: float = 0.0
    input_forget: bool = False
    linear_before_reset: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", float(np.float32(self.clip)))
        rounded = tuple(tuple(float(np.float32(x)) for x in numbers) for numbers in self.numbers)
        object.__setattr__(self, "numbers", rounded)

    def fault(self) -> str | None:
        """Fault of the settings in words, or None."""
        if self.cell not in self.GATES:
            return f"cell '{self.cell}' is none of {', '.join(sorted(self.GATES))}"
        if len(self.activations) != self.FUNCTIONS[self.cell] or len(self.numbers) != len(self.activations):
            return f"{self.cell} needs {self.FUNCTIONS[self.cell]} activations, each with its numbers"
        for name, numbers in zip(self.activations, self.numbers, strict=True):
            if name not in ACTIVATIONS or len(numbers) != len(ACTIVATIONS[name].numbers):
                return f"activation '{name}' with {len(numbers)} numbers is not known"
        return None

    @property
    def gates(self) -> int:
        """Number of gates."""
        return self.GATES[self.cell]

    @property
    def resets_state(self) -> bool:
        """Whether the last gate's product is that of the state after its reset."""
        return self.cell == "gru" and not self.linear_before_reset

    def activated(self, which: int, x: Real) -> Real:
        """An activation, of x within the bounds."""
        return self._applied(which, clip(x, -self.clip, self.clip) if self.clip else x)

    def _applied(self, which: int, x: Real) -> Real:
        return ACTIVATIONS[self.activations[which]].meaning(x, *self.numbers[which])

    def reset(self, given: Real, own: Real, carried: Real) -> Real:
        """The state after its reset, of a GRU that `resets_state`. given, own: sums of the reset gate."""
        return self.activated(0, given + own) * carried

    def step(
        self,
        given: Sequence[Real],
        own: Sequence[Real],
        carried: Real,
        peepholes: Sequence[Real] = (),
        bias: Real | None = None,
    ) -> tuple[Real, Real]:
        """The new hidden state, and what is carried on.

        given: sums of every gate from the input, biases among them. own: those from the state. peepholes: an
        LSTM's factors of c for input, output and forget gate. bias: what a GRU adds to its last own sum.
        """
        if self.cell == "lstm":
            return self._lstm([g + o for g, o in zip(given, own, strict=True)], carried, peepholes)
        if self.cell == "gru":
            hidden = self._gru(given, own, carried, bias)
        else:
            hidden = self.activated(0, given[0] + own[0])
        return hidden, hidden

    def _lstm(self, sums: Sequence[Real], content: Real, peepholes: Sequence[Real]) -> tuple[Real, Real]:
        wanted, out, forgotten, new = sums
        if peepholes:
            wanted = wanted + peepholes[0] * content
            forgotten = forgotten + peepholes[2] * content
        wanted = self.activated(0, wanted)
        kept = 1.0 - wanted if self.input_forget else self.activated(0, forgotten)
        content = kept * content + wanted * self.activated(1, new)
        if peepholes:
            out = out + peepholes[1] * content
        return self.activated(0, out) * self._applied(2, content), content

    def _gru(self, given: Sequence[Real], own: Sequence[Real], before: Real, bias: Real | None) -> Real:
        update = self.activated(0, given[0] + own[0])
        last = own[2] if bias is None else own[2] + bias
        if self.linear_before_reset:
            last = self.activated(0, given[1] + own[1]) * last
        new = self.activated(1, given[2] + last)
        # (1 - z) * new + z * before, with one product less.
        return new + update * (before - new)
