"""Sequences of symbols: decoding by connectionist temporal classification, and how well they fit.

Figures are in per cent; `found` and `true` have one sequence a sample, in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qglow.core.types import Array

Symbols = Sequence[int]


def ctc_decode(scores: Array, blank: int = 0) -> list[list[int]]:
    """Decode scores [N, steps, classes] by the best path (Graves et al. 2006), one list of classes a sample.

    The path has the best class of each step; repeats are merged, then blanks dropped. A negative `blank`
    counts from the last class. Raises ValueError for scores of another rank or a blank that is no class.

    >>> ctc_decode(np.eye(3)[[[1, 1, 0, 1, 2]]])  # one sample, the best classes of its five steps
    [[1, 1, 2]]
    """
    if scores.ndim != 3 or not -scores.shape[2] <= blank < scores.shape[2]:
        raise ValueError(f"scores {list(scores.shape)} are not [N, steps, classes] with a class {blank}")
    empty = blank % scores.shape[2]
    decoded = []
    for path in scores.argmax(2).tolist():
        merged = [symbol for index, symbol in enumerate(path) if index == 0 or symbol != path[index - 1]]
        decoded.append([symbol for symbol in merged if symbol != empty])
    return decoded


def edit_distance(found: Symbols, true: Symbols) -> int:
    """The fewest insertions, deletions and substitutions that turn one sequence into the other.

    Source: Levenshtein 1966.

    >>> edit_distance([1, 2, 3], [1, 3, 4])
    2
    """
    row = list(range(len(true) + 1))
    for index, symbol in enumerate(found, 1):
        diagonal, row[0] = row[0], index
        for column, other in enumerate(true, 1):
            cheapest = min(row[column] + 1, row[column - 1] + 1, diagonal + (symbol != other))
            diagonal, row[column] = row[column], cheapest
    return row[-1]


def exact_match(found: Sequence[Symbols], true: Sequence[Symbols]) -> float:
    """Share of sequences that are right as a whole, in per cent.

    Raises ValueError for no sequences, or different numbers of them.

    >>> exact_match([[1, 2], [3]], [[1, 2], [3, 4]])
    50.0
    """
    _check_samples(found, true)
    return 100.0 * float(np.mean([list(a) == list(b) for a, b in zip(found, true, strict=True)]))


def edit_accuracy(found: Sequence[Symbols], true: Sequence[Symbols]) -> float:
    """100 less the edits in per cent of all true symbols (the error rate of characters or words).

    It is below 0 if there are more edits than symbols. Raises ValueError for no true symbols, or different
    numbers of sequences.

    >>> edit_accuracy([[1, 2], [3]], [[1, 2], [3, 4]])  # one edit for four symbols
    75.0
    """
    _check_samples(found, true)
    length = sum(map(len, true))
    if not length:
        raise ValueError("all true sequences are empty")
    edits = sum(edit_distance(a, b) for a, b in zip(found, true, strict=True))
    return 100.0 * (1.0 - edits / length)


def _check_samples(found: Sequence[Symbols], true: Sequence[Symbols]) -> None:
    if len(found) != len(true) or not found:
        raise ValueError(f"{len(found)} sequences are found, {len(true)} are known")
