"""The output that has scores of classes, one row a sample or one a position of it, and its labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from qglow.core.errors import DataError
from qglow.core.types import Array
from qglow.metrics.classification import (
    class_scores,
    classification_output,
    position_output,
    position_scores,
)
from qglow.profiling.samples import Batch

SAMPLES, POSITIONS = "samples", "positions"


@dataclass(frozen=True)
class ScoredOutput:
    """An output [N, classes], or [N, T, classes] with T positions. `positions` is T, or None."""

    name: str
    positions: int | None = None

    @property
    def counted(self) -> str:
        """The word for what its rows stand for."""
        return SAMPLES if self.positions is None else POSITIONS

    def rows(self, outputs: Mapping[str, Array]) -> Array:
        """Scores [M, classes]: M is N, or N * T."""
        array = outputs[self.name]
        return class_scores(array) if self.positions is None else position_scores(array)

    def labels(self, batch: Batch) -> Array:
        """Labels [M] as int64, the smallest integer where a row has none, or one that does not count.

        Raises DataError for a sample whose labels are not of this output.
        """
        found = np.full((len(batch), self.positions or 1), UNLABELLED)
        for row, label in enumerate(batch.labels):
            if label is None:
                continue
            if self.positions is None or not isinstance(label, tuple):
                found[row] = _one_class(batch, row, self)
            else:
                classes = np.array(label, np.int64)
                found[row] = np.where(classes < 0, UNLABELLED, classes)
        return found.reshape(-1)

    def key(self, batch: Batch, row: int) -> str:
        """The name of a row in messages: of its sample, and its position."""
        if self.positions is None:
            return batch.keys[row]
        return f"{batch.keys[row // self.positions]}, position {row % self.positions}"


UNLABELLED = np.iinfo(np.int64).min


def scored_output(
    outputs: Mapping[str, Array], batch: Batch, scores: Collection[str] | None = None
) -> ScoredOutput | None:
    """Find the output with scores of classes in what the float model gives for a batch.

    Where samples have a row of labels, the first real output [N, T, classes] with a position for each. Else
    the first output [N, classes], which without labels is one of `scores` if they are given; else, where an
    integer input [N, T] has the tokens of a sequence, the first real output [N, T, classes].
    """
    lengths = {len(label) for label in batch.labels if isinstance(label, tuple)}
    if len(lengths) == 1:
        found = _of_positions(outputs, batch, lengths.pop())
        if found is not None:
            return found
    labelled = any(label is not None for label in batch.labels)
    known = {n: a for n, a in outputs.items() if labelled or scores is None or n in scores}
    name = classification_output(known, len(batch))
    if name is not None:
        return ScoredOutput(name)
    tokens = (a for a in batch.stacked.values() if a.ndim == 2 and np.issubdtype(a.dtype, np.integer))
    fitting = (_of_positions(outputs, batch, array.shape[1]) for array in tokens)
    return next((each for each in fitting if each is not None), None)


def labels_fit(batch: Batch, scored: ScoredOutput) -> bool:
    """Whether the labels of a batch are of this output: a class of each sample, or of each position."""
    lengths = {len(label) for label in batch.labels if isinstance(label, tuple)}
    return lengths == (set() if scored.positions is None else {scored.positions})


def check_labels_fit(outputs: Mapping[str, Array], batch: Batch, scored: ScoredOutput | None) -> None:
    """Raise DataError for a row of labels where no output has a position for each."""
    counts = sorted({len(label) for label in batch.labels if isinstance(label, tuple)})
    if not counts or (scored is not None and labels_fit(batch, scored)):
        return
    shapes = ", ".join(f"'{name}' {list(array.shape)}" for name, array in outputs.items())
    raise DataError(
        f"{batch.keys[0]}: a row of {' or '.join(map(str, counts))} labels needs an output "
        f"[N, {counts[0]}, classes], but the model has {shapes}; what it means takes a metric (`metric`)"
    )


def _of_positions(outputs: Mapping[str, Array], batch: Batch, positions: int) -> ScoredOutput | None:
    name = position_output(outputs, len(batch), positions)
    return None if name is None else ScoredOutput(name, positions)


def _one_class(batch: Batch, row: int, scored: ScoredOutput) -> int:
    label = batch.labels[row]
    if scored.positions is None and isinstance(label, int):
        return label
    raise DataError(f"{batch.keys[row]}: its label does not have the form of the others'")
