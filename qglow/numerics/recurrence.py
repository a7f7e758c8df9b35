"""Recurrent layers: the sums of all steps from the input are given, the products of the state are made here.

Row t + 1 of the result is the hidden state after step t, and row 0 the one before all steps; in reverse, row
t is that after step t, and the last row the one before. Sequences that have ended keep their state.
See the ONNX operators GRU, LSTM and RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.linear import gemm_accumulate, gemm_float
from qglow.numerics.quantize import parameters, quantize_by
from qglow.numerics.scalar.algebra import Real
from qglow.numerics.scalar.arrays import ArrayAlgebra
from qglow.numerics.scalar.cells import RecurrentCell
from qglow.numerics.weights import bias_scales

Product = Callable[[Array, int, int], Array]
"""float32 [N, count]: states times columns of the weights, from the first one on, `count` of them."""
LARGEST_DEPTH = (2**31 - 1) // (255 * 127)
"""Most states whose products with int8 weights int32 holds for certain."""


@dataclass(frozen=True)
class Sequences:
    """Operands of a recurrent layer of T steps, N sequences, H states and G gates.

    given: float [T, N, G * H]. hidden: [N, H], the first hidden states as the result holds them. carried:
    float [N, H], what the cells carry. bias: float [H] or None. peepholes: float [3 * H] or None. lengths:
    int32 [N], steps of each sequence, or None.
    """

    given: Array
    hidden: Array
    carried: Array
    bias: Array | None = None
    peepholes: Array | None = None
    lengths: Array | None = None


def recur_float(cell: RecurrentCell, weights: Array, sequences: Sequences) -> tuple[Array, Array]:
    """float32 states [T + 1, N, H] and what is carried at the end. weights: [H, G * H].

    The order of the products' additions is numpy's; compiled code keeps a tolerance.
    """

    def product(state: Array, first: int, count: int) -> Array:
        return gemm_float(state, weights[:, first : first + count])

    return _run(cell, sequences, product, lambda state: state)


def recur_int8(
    cell: RecurrentCell,
    weights: Array,
    factors: Array,
    state_parameters: Quantization,
    sequences: Sequences,
) -> tuple[Array, Array]:
    """int8 states [T + 1, N, H] and, in float, what is carried at the end. factors: `state_factors`.

    Products are exact sums of the int8 states and weights times `factors`; gates, and what is carried, are
    float; each new state is rounded by rule 1.
    """

    def product(state: Array, first: int, count: int) -> Array:
        part = slice(first, first + count)
        sums = gemm_accumulate(state, state_parameters.zero_point, weights[:, part])
        return np.asarray(sums.astype(np.float32) * factors[part])

    return _run(cell, sequences, product, lambda state: quantize_by(state, state_parameters))


def state_factors(state: Quantization, weights: Quantization, columns: int) -> Array:
    """float32(s_h * s_w) of every column of the weights."""
    return bias_scales(state.scale, np.broadcast_to(parameters(weights)[0], (columns,)))


def _run(
    cell: RecurrentCell, sequences: Sequences, product: Product, stored: Callable[[Array], Array]
) -> tuple[Array, Array]:
    steps, batch, _ = sequences.given.shape
    width = sequences.hidden.shape[1]
    states = np.empty((steps + 1, batch, width), sequences.hidden.dtype)
    hidden, carried = sequences.hidden, np.asarray(sequences.carried, np.float32)
    states[steps if cell.reverse else 0] = hidden
    own_count = (cell.gates - 1 if cell.resets_state else cell.gates) * width
    peepholes = [] if sequences.peepholes is None else np.split(sequences.peepholes, 3)
    for number in range(steps):
        time = steps - 1 - number if cell.reverse else number
        given = np.split(sequences.given[time], cell.gates, axis=1)
        own = np.split(product(hidden, 0, own_count), own_count // width, axis=1)
        if cell.resets_state:
            (reset,) = _evaluate(lambda x: (cell.reset(*x),), [given[1], own[1], carried])
            own.append(product(stored(reset), own_count, width))
        new, after = _step(cell, given, own, carried, peepholes, sequences.bias)
        new = stored(new)
        if sequences.lengths is not None:
            within = (time < sequences.lengths)[:, None]
            new, after = np.where(within, new, hidden), np.where(within, after, carried)
        hidden, carried = new, after
        states[time if cell.reverse else time + 1] = hidden
    return states, carried


def _step(
    cell: RecurrentCell,
    given: Sequence[Array],
    own: Sequence[Array],
    carried: Array,
    peepholes: Sequence[Array],
    bias: Array | None,
) -> tuple[Array, ...]:
    gates, count = cell.gates, 2 * cell.gates + 1

    def meaning(x: Sequence[Real]) -> tuple[Real, ...]:
        last = None if bias is None else x[count + len(peepholes)]
        seen = x[count : count + len(peepholes)]
        return cell.step(x[:gates], x[gates : count - 1], x[count - 1], seen, last)

    return _evaluate(meaning, [*given, *own, carried, *peepholes, *([] if bias is None else [bias])])


def _evaluate(
    meaning: Callable[[Sequence[Real]], tuple[Real, ...]], operands: Sequence[Array]
) -> tuple[Array, ...]:
    algebra = ArrayAlgebra()
    with np.errstate(all="ignore"):
        results = meaning([Real(algebra, np.asarray(x, np.float32)) for x in operands])
    return tuple(np.asarray(result.value) for result in results)
