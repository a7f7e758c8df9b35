"""An int8 program against the float model, and against onnxruntime on the exported QDQ model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from qglow.core.errors import ComparisonFailed, DataError, UsageError
from qglow.core.options import require_limits
from qglow.core.types import Array
from qglow.metrics.classification import best_class
from qglow.profiling.samples import Batch, Sample, batches
from qglow.report.comparison_result import FLOAT, INT8, QDQ, Accuracy, Agreement, Comparison, Pairing
from qglow.report.metrics import ErrorAccumulator, HitCounter
from qglow.report.runner import Runner, batch_size, run_batch
from qglow.report.scored import SAMPLES, UNLABELLED, ScoredOutput, check_labels_fit, labels_fit, scored_output
from qglow.report.significance import Flips
from qglow.report.task_metric import Answers, MetricFigures, TaskMetric


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that a comparison has to keep to; None leaves a figure free.

    top1_drop: largest drop of top-1 accuracy, in percentage points. agreement: lowest share of samples with
    the same best class, in per cent. sqnr_db: lowest SQNR of the outputs, in dB. metric, metric_drop: lowest
    value and largest drop of the metric that was asked for, in its unit. max_metric: highest value of one
    that is better the lower it is. Raises UsageError for a limit that is no finite number. A figure that is
    NaN keeps to no limit.
    """

    top1_drop: float | None = None
    agreement: float | None = None
    sqnr_db: float | None = None
    metric: float | None = None
    metric_drop: float | None = None
    max_metric: float | None = None

    def __post_init__(self) -> None:
        require_limits(self)


def check(comparison: Comparison, limits: Limits, subject: str = INT8, reference: str = FLOAT) -> None:
    """Hold a comparison to limits.

    Raises ComparisonFailed with every limit that the subject breaks, UsageError for one that cannot apply.
    """
    pairing = comparison.pairing(subject, reference)
    broken = []
    if pairing.overall.non_finite:
        broken.append(f"{pairing.overall.non_finite} elements are NaN or infinite in only one of both")
    if limits.top1_drop is not None:
        drop = comparison.top1_drop(subject, reference)
        if drop is None:
            raise UsageError("a limit on top-1 accuracy needs labelled data and an output of scores by class")
        if not drop <= limits.top1_drop:
            broken.append(f"top-1 drops by {drop:.2f} points, at most {limits.top1_drop:g} are allowed")
    if limits.agreement is not None:
        if pairing.agreement is None:
            raise UsageError("a limit on agreement needs an output of scores by class")
        agreement = 100.0 * pairing.agreement.top1
        if not agreement >= limits.agreement:
            broken.append(f"{agreement:.2f} % agree in top-1, at least {limits.agreement:g} % must")
    if limits.sqnr_db is not None and not pairing.overall.sqnr_db >= limits.sqnr_db:
        broken.append(f"SQNR is {pairing.overall.sqnr_db:.2f} dB, at least {limits.sqnr_db:g} dB must be")
    broken += _broken_by_metric(comparison.metric, limits, subject, reference)
    if broken:
        raise ComparisonFailed(f"{subject} against {reference}: " + "; ".join(broken))


def _broken_by_metric(
    figures: MetricFigures | None, limits: Limits, subject: str, reference: str
) -> Iterator[str]:
    if (limits.metric, limits.metric_drop, limits.max_metric) == (None, None, None):
        return
    if figures is None:
        raise UsageError("a limit on a metric needs the metric (`metric`)")
    figures.check_side(limits.metric, limits.max_metric)
    value, drop = figures.values[subject], figures.drop(subject, reference)
    if limits.metric is not None and not value >= limits.metric:
        yield f"{figures.name} is {value:.6g}, at least {limits.metric:g} must be"
    if limits.max_metric is not None and not value <= limits.max_metric:
        yield f"{figures.name} is {value:.6g}, at most {limits.max_metric:g} may be"
    if limits.metric_drop is None:
        return
    if drop is None:
        raise UsageError(f"{figures.name} compares with the float model, so it cannot drop; limit its value")
    if not drop <= limits.metric_drop:
        verb = "rises" if figures.lower_is_better else "drops"
        yield f"{figures.name} {verb} by {drop:.6g}, at most {limits.metric_drop:g} is allowed"


def compare(
    subject: Runner,
    reference: Runner,
    data: Iterable[Sample],
    *,
    rivals: Mapping[str, Runner] | None = None,
    pairs: Iterable[tuple[str, str]] = (),
    metric: TaskMetric | None = None,
    scores: Collection[str] | None = None,
    advance: Callable[[int], None] = lambda samples: None,
) -> Comparison:
    """Run the int8 program and the float reference over the data, once, and measure.

    The subject is called INT8 and the reference FLOAT in the result. `rivals` are further programs:
    each is compared with the reference, and the subject with the rival called QDQ where there is one.
    `pairs` asks for more (subject, reference) pairings. `metric` is measured of every program; that takes
    memory for all outputs of all samples. Every program may have a batch of its own. scores: outputs that may
    be scores of classes where nothing is labelled (default: their shapes tell).
    `advance` is told the number of samples done. Raises DataError for labels outside the classes.
    """
    runners: dict[str, Runner] = {FLOAT: reference, INT8: subject, **(rivals or {})}
    wanted = [(INT8, FLOAT)]
    if QDQ in runners:
        wanted.append((INT8, QDQ))
    wanted += [(name, FLOAT) for name in runners if name not in (FLOAT, INT8)]
    wanted = list(dict.fromkeys([*wanted, *pairs]))
    unknown = sorted({name for pair in wanted for name in pair} - set(runners))
    if unknown:
        raise UsageError(f"no program is called {', '.join(unknown)}; there are {', '.join(runners)}")
    counting = _Counting(wanted, metric, scores)
    size = max(batch_size(runner) for runner in runners.values())
    for batch in batches(data, size):
        counting.add(batch, {name: run_batch(runner, batch) for name, runner in runners.items()})
        advance(len(batch))
    return counting.result()


@dataclass
class _PairCounts:
    errors: dict[str, ErrorAccumulator] = field(default_factory=dict)
    agreement: HitCounter = field(default_factory=HitCounter)
    lost: int = 0
    won: int = 0

    def add(
        self,
        subject: Mapping[str, Array],
        reference: Mapping[str, Array],
        scored: ScoredOutput | None,
        labels: Array | None,
    ) -> None:
        for name, expected in reference.items():
            if name not in subject:
                raise UsageError(f"output '{name}' is given by one program only")
            found = subject[name].reshape(expected.shape)
            self.errors.setdefault(name, ErrorAccumulator()).add(found, expected)
        if scored is None:
            return
        found, expected = scored.rows(subject), scored.rows(reference)
        if labels is not None:  # positions that do not count have no say
            found, expected = found[labels != UNLABELLED], expected[labels != UNLABELLED]
        self.agreement.add(found, best_class(expected))

    def count_flips(self, right: Array, reference_right: Array) -> None:
        """Count lost and won labels, from bool[N]: the subject, and the reference, chose the label."""
        self.lost += int(np.count_nonzero(reference_right & ~right))
        self.won += int(np.count_nonzero(right & ~reference_right))

    def result(self, subject: str, reference: str, labelled: int) -> Pairing:
        overall = ErrorAccumulator()
        for errors in self.errors.values():
            overall.merge(errors)
        agreement = None
        if self.agreement.samples:
            agreement = Agreement(self.agreement.samples, *self.agreement.shares())
        outputs = {name: errors.summary() for name, errors in self.errors.items()}
        flips = Flips(labelled, self.lost, self.won) if labelled else None
        return Pairing(subject, reference, outputs, overall.summary(), agreement, flips)


class _Counting:
    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        metric: TaskMetric | None,
        scores: Collection[str] | None,
    ) -> None:
        self._samples = 0
        self._pairs = {pair: _PairCounts() for pair in pairs}
        self._hits: dict[str, HitCounter] = {}
        self._metric = metric
        self._scores = scores
        self._answers: dict[str, Answers] = {}
        self._counted = SAMPLES

    def add(self, batch: Batch, results: Mapping[str, Mapping[str, Array]]) -> None:
        self._samples += len(batch)
        scored = scored_output(results[FLOAT], batch, self._scores)
        if self._metric is None:
            check_labels_fit(results[FLOAT], batch, scored)
        labels = None
        if scored is not None:
            self._counted = scored.counted
            labels = self._count_labels(batch, results, scored)
        for (subject, reference), counts in self._pairs.items():
            counts.add(results[subject], results[reference], scored, labels)
        if self._metric is not None:
            for name, outputs in results.items():
                self._answers.setdefault(name, Answers.wanted_by(self._metric)).add(batch, outputs)

    def result(self) -> Comparison:
        if not self._samples:
            raise DataError("no samples to compare with")
        accuracy = {name: Accuracy(hits.samples, *hits.shares()) for name, hits in self._hits.items()}
        labelled = self._hits[FLOAT].samples if self._hits else 0
        pairings = tuple(counts.result(*pair, labelled) for pair, counts in self._pairs.items())
        return Comparison(self._samples, pairings, accuracy, self._figures(), self._counted)

    def _figures(self) -> MetricFigures | None:
        metric = self._metric
        if metric is None:
            return None
        expected = self._answers[FLOAT]
        measured = {n: a for n, a in self._answers.items() if not (n == FLOAT and metric.is_relative)}
        values = {name: metric.of(answers, expected) for name, answers in measured.items()}
        spreads = {name: metric.spread(answers, expected) for name, answers in measured.items()}
        known = {name: spread for name, spread in spreads.items() if spread is not None}
        return MetricFigures(metric.name, values, metric.lower_is_better, known)

    def _count_labels(
        self, batch: Batch, results: Mapping[str, Mapping[str, Array]], scored: ScoredOutput
    ) -> Array | None:
        """Count in what is labelled. Gives labels [M] where they say which positions count, else None."""
        if all(label is None for label in batch.labels) or not labels_fit(batch, scored):
            return None
        labels = scored.labels(batch)
        known = labels != UNLABELLED
        if not known.any():
            return labels
        scores = {name: scored.rows(outputs) for name, outputs in results.items()}
        classes = scores[FLOAT].shape[1]
        outside = known & ((labels < 0) | (labels >= classes))
        if outside.any():
            row = int(np.argmax(outside))
            raise DataError(
                f"{scored.key(batch, row)}: label {labels[row]}, but the model has {classes} classes"
            )
        right = {}
        for name, array in scores.items():
            self._hits.setdefault(name, HitCounter()).add(array[known], labels[known])
            right[name] = best_class(array[known]) == labels[known]
        for (subject, reference), counts in self._pairs.items():
            counts.count_flips(right[subject], right[reference])
        return None if scored.positions is None else labels
