"""Recurrent operators in all directions, with states, lengths, peepholes and other activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from qglow.core.types import Array
from tests.unit.importer.cases import Case, floats, node

STEPS, BATCH, WIDTH, HIDDEN = 4, 3, 5, 2
INPUT = {"x": (STEPS, BATCH, WIDTH)}
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
LENGTHS = np.array([4, 1, 3], np.int32)


def weights(operator: str, directions: int = 1) -> dict[str, Array]:
    rows = GATES[operator] * HIDDEN
    return {
        "w": floats(directions, rows, WIDTH),
        "r": floats(directions, rows, HIDDEN),
        "b": floats(directions, 2 * rows),
        "h": floats(directions, BATCH, HIDDEN),
        "c": floats(directions, BATCH, HIDDEN),
        "p": floats(directions, 3 * HIDDEN),
        "n": LENGTHS,
    }


def case(name: str, operator: str, operands: str, directions: int = 1, **attributes: Any) -> Case:
    known = weights(operator, directions)
    names = ["x", *("" if letter == "-" else letter for letter in operands)]
    constants = {letter: known[letter] for letter in operands if letter != "-"}
    made = node(operator, *names, hidden_size=HIDDEN, **attributes)
    return Case(name, made, (14,), INPUT, constants)


CASES = [
    case("lstm", "LSTM", "wr"),
    case("lstm-all", "LSTM", "wrbnhcp", direction="reverse"),
    case("lstm-both", "LSTM", "wrb-hc", 2, direction="bidirectional", clip=0.5),
    case("lstm-both-lengths", "LSTM", "wrbn", 2, direction="bidirectional"),
    case("lstm-hard", "LSTM", "wrb", activations=["HardSigmoid", "Relu", "Softplus"]),
    case("gru", "GRU", "wrb"),
    case("gru-linear", "GRU", "wrb-h", 2, direction="bidirectional", linear_before_reset=1),
    case("gru-lengths", "GRU", "wrbnh", direction="reverse"),
    case("rnn", "RNN", "wrbnh", direction="reverse", activations=["LeakyRelu"], activation_alpha=[0.3]),
    case("rnn-both", "RNN", "wr", 2, direction="bidirectional", activations=["Tanh", "Elu"]),
]
