"""Entries of a baseline: what a model is quantized from, how it is measured, and what it must keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qglow.baseline.limits import EntryLimits
from qglow.metrics.built_in import COMPARED, DECODED, NAMES
from qglow.metrics.decoders import DECODERS
from qglow.report.significance import Flips

METRICS = tuple(dict.fromkeys(("top1", "top5", "agreement", "sqnr", "cosine", *NAMES)))
"""Accuracy and agreement in per cent, SQNR in dB, cosine similarity, and metrics of tasks: higher is better
but for LOWER_IS_BETTER.

"package.module:function" is one too."""

DEFAULT_TOLERANCE = {
    "top1": 0.5,
    "top5": 0.5,
    "agreement": 0.5,
    "sqnr": 0.5,
    "cosine": 0.001,
    **dict.fromkeys(("log_likelihood", "cross_entropy", "kl_float"), 0.01),
    "perplexity": 0.05,
} | dict.fromkeys(("psnr", "miou", *DECODED), 0.5)
"""By how much a metric may get worse unless an entry says so."""


def default_tolerance(metric: str) -> float | None:
    """Tolerance of a metric, with a decoder that is built in or not; None for other functions.

    >>> default_tolerance("exact_match:ctc_last"), default_tolerance("exact_match:my.module:decode")
    (0.5, None)
    """
    name, _, decoder = metric.partition(":")
    return DEFAULT_TOLERANCE.get(name if name in DECODED and decoder in DECODERS else metric)


@dataclass(frozen=True, slots=True)
class Samples:
    """Data by path (or "package.module:function"), and which samples of it."""

    data: str
    select: str | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one model: `value` of the metric, and `reference`, that of the float model, if it has one.

    int8_nodes, float_nodes, islands: counts. bytes: of all constants of the int8 model. Every figure
    but the metric is exact. labelled, lost, won: of top-1 accuracy, how many samples there are, and how
    many only the float model gets right, and only the int8 model; they decide what is noise, no more.
    samples: how many the figures of other metrics are over. Files of older versions lack these counts.
    artefact_bytes: of the written program. arena_bytes: of all values at one time. ratio_float32, ratio_int8:
    latency as a share of onnxruntime's on the float and on the exported int8 model, with `kernels` for this
    target. All of them are None where the entry has no limit of their kind.
    """

    value: float
    reference: float | None
    int8_nodes: int
    float_nodes: int
    islands: int
    bytes: int
    labelled: int | None = None
    lost: int | None = None
    won: int | None = None
    samples: int | None = None
    artefact_bytes: int | None = None
    arena_bytes: int | None = None
    ratio_float32: float | None = None
    ratio_int8: float | None = None
    kernels: str | None = None

    @property
    def flips(self) -> Flips | None:
        """Samples that float and int8 differ on; None for other metrics than top-1, and in old files."""
        if self.labelled is None or self.lost is None or self.won is None:
            return None
        return Flips(self.labelled, self.lost, self.won)


@dataclass(frozen=True, slots=True)
class Entry:
    """One model under one recipe. Paths are as in the file, relative to it.

    Ranges come from `calibration` data, from a `profile`, or lie in a directory, `quantized`.
    target: what the model is compiled for, in an emulator where the host cannot run it.
    tolerance: by how much the metric may get worse. expected_failure: why a regression is no surprise.
    measured: the baseline; None before the first update. limits: of latency, sizes and memory.
    """

    name: str
    evaluation: Samples
    labels: Path | None = None
    model: Path | None = None
    calibration: Samples | None = None
    profile: Path | None = None
    quantized: Path | None = None
    recipe: Path | None = None
    target: str | None = None
    metric: str = "top1"
    tolerance: float | None = None
    expected_failure: str = ""
    measured: Measured | None = None
    limits: EntryLimits = EntryLimits()

    @property
    def allowed(self) -> float:
        """Largest change for the worse that is allowed: the tolerance, or the metric's default."""
        known = default_tolerance(self.metric) if self.tolerance is None else self.tolerance
        assert known is not None  # a baseline file says it where the metric has none
        return known

    @property
    def task_metric(self) -> str | None:
        """The metric, where a comparison has to be asked for it."""
        return None if self.metric in COMPARED else self.metric
