"""Attention: rule 13 of the numeric contract, the order of its parts one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qglow.core.types import Array, Quantization
from qglow.numerics.linear import gemm_float, matmul_int8
from qglow.numerics.softmax import softmax_float


@dataclass(frozen=True)
class ScoreSteps:
    """Steps between the products of queries and keys and the shares of a row, in this order.

    factor: scores are multiplied by it, or divided where `divides`. Then a mask is added, and then scores
    that a condition does not choose become `otherwise`; the other way round where `chooses_first`. hides: the
    condition chooses those that become `otherwise`.
    masked_to_zero: shares that would be NaN, as those of minus infinity alone, are zeros.
    """

    factor: float = 1.0
    divides: bool = False
    otherwise: float = -np.inf
    hides: bool = False
    chooses_first: bool = False
    masked_to_zero: bool = False


@dataclass(frozen=True)
class ScoreMasks:
    """Arrays that steps read. addend, condition: they spread to [..., H * shared, M, T].

    live: bool [T], true for the first places alone, which are the ones that take part.
    """

    addend: Array | None = None
    condition: Array | None = None
    live: Array | None = None


def attention(
    queries: Array,
    keys: Array,
    values: Array,
    masks: ScoreMasks,
    shared: int,
    steps: ScoreSteps,
    parameters: tuple[Quantization, Quantization] | None = None,
) -> Array:
    """softmax(queries @ keys^T, after `steps`) @ values: [..., H * shared, M, E] in float32.

    queries: [..., H * shared, M, D]. keys: [..., H, T, D]. values: [..., H, T, E].
    parameters: of int8 queries and keys, whose products are exact sums (rule 5); None where they are float32.
    """
    addend, condition = masks.addend, masks.condition
    count = keys.shape[-2] if masks.live is None else int(np.count_nonzero(masks.live))
    keys, values = (np.repeat(x[..., :count, :], shared, axis=-3) for x in (keys, values))
    columns = np.swapaxes(keys, -1, -2)
    if parameters is None:
        scores = gemm_float(queries, columns)
    else:
        scores = matmul_int8(queries, parameters[0], columns, parameters[1], None)
    factor = np.float32(steps.factor)
    with np.errstate(invalid="ignore", over="ignore"):
        scores = scores / factor if steps.divides else scores * factor
        for chooses in (steps.chooses_first, not steps.chooses_first):
            if chooses and condition is not None:
                shown = condition[..., :count] != steps.hides
                scores = np.where(shown, scores, np.float32(steps.otherwise))
            if not chooses and addend is not None:
                scores = scores + addend[..., :count]
    return gemm_float(softmax_float(scores, -1, steps.masked_to_zero), values)
