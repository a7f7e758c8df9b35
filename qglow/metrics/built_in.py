"""Metrics by name: functions of outputs, and scores over what a decoder makes of outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qglow.core.types import Array
from qglow.metrics.boxes import Boxes
from qglow.metrics.classification import top1, top5
from qglow.metrics.detection import box_f1, map50, mean_average_precision
from qglow.metrics.images import miou, psnr
from qglow.metrics.positions import (
    agreement,
    divergences,
    kl_float,
    label_cross_entropy,
    label_likelihood,
    label_perplexity,
)
from qglow.metrics.sequences import edit_accuracy, exact_match
from qglow.metrics.truth import Photo


@dataclass(frozen=True)
class DecodedMetric:
    """A score of decoded answers.

    score: takes them and what is true, one element a sample each. truth: what that is: `photos` or
    `sequences` of the truth file, or `expected`, the decoded answers of the float model. decoder: the name
    of the one that is taken unless another is given.
    """

    score: Callable[[Sequence[Any], Sequence[Any]], float]
    truth: str
    decoder: str

    def with_decoder(
        self, decode: Callable[..., Iterable[Any]], asks: Sequence[str]
    ) -> tuple[Callable[..., float], tuple[str, ...]]:
        """The metric as a function by names of parameters, and those names; `asks` are the decoder's."""

        def measured(**given: Any) -> float:
            found = list(decode(**{name: given[name] for name in asks}))
            if self.truth == "expected":
                others = {**given, "outputs": given["expected"]}
                return self.score(found, list(decode(**{name: others[name] for name in asks})))
            return self.score(found, given[self.truth])

        return measured, tuple(dict.fromkeys([*asks, self.truth]))


def _map(found: Sequence[Boxes], photos: Sequence[Photo]) -> float:
    return mean_average_precision(found, [photo.boxes for photo in photos])


def _map50(found: Sequence[Boxes], photos: Sequence[Photo]) -> float:
    return map50(found, [photo.boxes for photo in photos])


def _f1(found: Sequence[Boxes], photos: Sequence[Photo]) -> float:
    return box_f1(found, [photo.boxes for photo in photos])


def _f1_float(found: Sequence[Boxes], expected: Sequence[Boxes]) -> float:
    """F1 with the boxes of the float model of the same least score."""
    return box_f1(found, [boxes.chosen(boxes.scores >= 0.5) for boxes in expected])


FUNCTIONS: dict[str, Callable[..., float]] = {
    "psnr": psnr,
    "miou": miou,
    "top1": top1,
    "top5": top5,
    "agreement": agreement,
    "kl_float": kl_float,
    "log_likelihood": label_likelihood,
    "cross_entropy": label_cross_entropy,
    "perplexity": label_perplexity,
}
"""Metrics that need no decoder."""

ONE_BY_ONE: dict[str, Callable[..., Array]] = {"kl_float": divergences}
"""Numbers [samples, positions] of metrics that are their mean, with the metrics' own parameters."""

LOWER_IS_BETTER = frozenset({"kl_float", "cross_entropy", "perplexity"})
"""Metrics that are better the lower they are; of all others, higher is better."""

DECODED: dict[str, DecodedMetric] = {
    "map50": DecodedMetric(_map50, "photos", "boxes"),
    "map": DecodedMetric(_map, "photos", "boxes"),
    "f1": DecodedMetric(_f1, "photos", "boxes"),
    "f1_float": DecodedMetric(_f1_float, "expected", "boxes"),
    "exact_match": DecodedMetric(exact_match, "sequences", "ctc"),
    "exact_match_float": DecodedMetric(exact_match, "expected", "ctc"),
    "edit_accuracy": DecodedMetric(edit_accuracy, "sequences", "ctc"),
    "edit_accuracy_float": DecodedMetric(edit_accuracy, "expected", "ctc"),
}
"""Metrics over decoded answers: NAME, NAME:DECODER, or NAME:package.module:function."""

COMPARED = ("top1", "top5", "sqnr", "cosine")
"""Figures that every comparison gives without being asked for one."""
NAMES = (*FUNCTIONS, *DECODED)
