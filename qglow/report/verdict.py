"""Verdict on an int8 model: is it as good as the float model, which outputs suffer, and what costs most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qglow.core.errors import ComparisonFailed, UsageError
from qglow.display.blocks import Block, Paragraph, Section, decibels, percent, significant, table
from qglow.display.frames import frame
from qglow.display.shown import Shown
from qglow.report.output_errors import OutputError, OutputErrors, StreamErrors

if TYPE_CHECKING:
    import pandas

GOOD, SUSPICIOUS, BROKEN = "good", "suspicious", "broken"
GOOD_DB = 15.0
"""From here the noise is at most 3 % of the power of the outputs: classifiers lose at most a point there."""
BROKEN_DB = 6.0
"""Below it the noise is more than a quarter of the power of the outputs, which no trained model survives."""
MOST = 0.5
"""Share of samples, or of integers, that have to agree: fewer are an answer of another model."""
NEARLY_ALL = 0.75
"""Share of integers, or of classes by probabilities, that agree in a good model: of eight labels two may be
close calls."""
ALIKE = 0.9
"""Agreement beyond chance from which probabilities at positions answer as the float model does: their SQNR
counts close calls that turn, each as large as a whole answer, and is 12 dB where 3 % of them do."""
FEW_SAMPLES = 8
"""Samples below which a verdict says that it rests on few, the same that set the ranges."""
SHOWN = 5
"""Values that a verdict names."""
SET_RANGES = "Samples as few as these also set the ranges: other data can lose more."


@dataclass(frozen=True, slots=True)
class WorstValue:
    """A value inside of the model that loses much, and why, in words.

    sqnr_db: of the value by its own quantization, or of the result of weights by theirs; from the profile.
    """

    value: str
    sqnr_db: float
    reason: str


@dataclass(frozen=True, repr=False)
class ModelVerdict(Shown):
    """Verdict on an int8 model against its float model.

    word: "good", "suspicious" or "broken". samples: number of the profile's samples that it was measured on;
    0 where it is predicted from the profile. sqnr_db: the smallest SQNR of an output, in dB, -inf for NaN
    and infinities that float has not; None where no output has one. agreement: the smallest share, 0 to 1, of
    equal best classes of an output of scores (of samples, or of their positions), or of equal integers; None
    without such outputs. outputs:
    measured errors of each. worst: at most five values, the one that loses most first. note: a sentence on
    why there were no samples, or on what was compared where that is not all outputs, or "". stream: errors
    where both models take their own states again for many calls; None where no states are named.
    """

    word: str
    samples: int
    sqnr_db: float | None
    agreement: float | None
    outputs: tuple[OutputError, ...] = ()
    worst: tuple[WorstValue, ...] = ()
    note: str = ""
    stream: StreamErrors | None = None

    @property
    def is_measured(self) -> bool:
        """Whether it was measured, and not predicted."""
        return self.samples > 0

    @property
    def is_good(self) -> bool:
        """Whether there is nothing to complain of."""
        return self.word == GOOD

    @property
    def suffering(self) -> tuple[OutputError, ...]:
        """Outputs that are not good in single calls, the worst first."""
        return tuple(sorted(filter(_suffers, self.outputs), key=_level))

    @property
    def lowest_db(self) -> float | None:
        """The smallest SQNR of an output in single calls and at the end of a stream, in dB; None if none."""
        late = None if self.stream is None else self.stream.last.sqnr_db
        return min((each for each in (self.sqnr_db, late) if each is not None), default=None)

    def __str__(self) -> str:
        return f"{self.word}: {self.figures}"

    def __repr__(self) -> str:
        return f"ModelVerdict({self})"

    def _sections(self) -> tuple[Section, ...]:
        return (verdict_section(self),)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each output that was measured. Raises UsageError if pandas is not installed."""
        columns = ("output", "sqnr_db", "agreement", "non_finite", "max_abs")
        return frame(
            columns, ((x.name, x.sqnr_db, x.agreement, x.non_finite, x.max_abs) for x in self.outputs)
        )

    @property
    def figures(self) -> str:
        """Figures in words, and what they come from."""
        if not self.is_measured:
            level = "" if self.sqnr_db is None else f"SQNR about {self.sqnr_db:.0f} dB, "
            return f"{level}predicted from the profile"
        figures = [] if self.sqnr_db is None else [f"SQNR {_decibels(self.sqnr_db)}"]
        excuses = [each for each in map(_level_that_excuses, self.outputs) if each is not None]
        figures += [f"{_decibels(min(excuses))} of the logarithms of probabilities"] if excuses else []
        figures += [] if self.agreement is None else [f"agreement {percent(self.agreement)}"]
        listed = ", ".join(figures)
        samples = "sample" if self.samples == 1 else "samples"
        streamed = "" if self.stream is None else f"; {_stream_figures(self.stream)}"
        return f"{listed}, measured on {self.samples} {samples} of the profile{streamed}"

    def require(self, min_sqnr_db: float | None = None, *, strict: bool = False) -> None:
        """Hold the verdict to a limit, and under `strict` to the word "good".

        Raises ComparisonFailed where it does not hold, UsageError for a limit that is not a finite number or
        cannot apply because no output has an SQNR.
        """
        if min_sqnr_db is not None:
            if not math.isfinite(min_sqnr_db):
                raise UsageError(f"min_sqnr {min_sqnr_db}: it has to be a finite number", field="min_sqnr")
            if self.lowest_db is None:
                raise UsageError("min_sqnr: no output has a signal-to-noise ratio", field="min_sqnr")
            if self.lowest_db < min_sqnr_db:
                raise ComparisonFailed(f"the int8 model is {self}; at least {min_sqnr_db:g} dB must be")
        if strict and self.word != GOOD:
            raise ComparisonFailed(f"the int8 model is {self} (`strict`)")


def measured_verdict(
    errors: OutputErrors, worst: tuple[WorstValue, ...] = (), stream: StreamErrors | None = None
) -> ModelVerdict:
    """The verdict on measured errors of single calls and, if there is one, of the end of a stream."""
    words = [word_of(errors)]
    if stream is not None and can_be_judged(stream.last):
        words.append(word_of(stream.last))
    word = max(words, key=(GOOD, SUSPICIOUS, BROKEN).index)
    return ModelVerdict(
        word,
        errors.samples,
        errors.sqnr_db,
        errors.agreement,
        errors.outputs,
        worst[:SHOWN],
        stream=stream,
    )


def predicted_verdict(sqnr_db: float, worst: tuple[WorstValue, ...] = (), note: str = "") -> ModelVerdict:
    """The verdict on a predicted SQNR."""
    return ModelVerdict(_word(sqnr_db), 0, sqnr_db, None, (), worst[:SHOWN], note)


def can_be_judged(errors: OutputErrors) -> bool:
    """Whether any output has figures: those that are zero, or empty, on all samples have none."""
    return errors.sqnr_db is not None or errors.agreement is not None


def word_of(errors: OutputErrors) -> str:
    """The word for errors that `can_be_judged`.

    Reals decide where there are any, since integers such as the order of equal scores may differ in a
    good model. Scores of a model with little noise that still choose other classes are suspicious.
    Probabilities that choose the same classes are good down to where models break: at positions by their
    agreement beyond chance, of samples where the scores that a softmax made them of are good.
    """
    level = errors.sqnr_db
    if level is None:
        share = 1.0 if errors.agreement is None else errors.agreement
        return BROKEN if share < MOST else SUSPICIOUS if share < NEARLY_ALL else GOOD
    if any(map(_chooses_others, errors.outputs)):
        return SUSPICIOUS if level >= GOOD_DB else BROKEN
    if errors.non_finite:
        return BROKEN
    judged = [o.sqnr_db for o in errors.outputs if o.sqnr_db is not None and not _answers_alike(o)]
    return _word(min(judged, default=GOOD_DB))


def verdict_section(verdict: ModelVerdict) -> Section:
    """The verdict for people."""
    few = f" {SET_RANGES}" if verdict.is_measured and verdict.samples < FEW_SAMPLES else ""
    blocks: list[Block] = [Paragraph(f"{verdict.figures}. {_meaning(verdict)}{few}")]
    if verdict.note:
        blocks.append(Paragraph(f"{verdict.note}."))
    if verdict.suffering:
        rows = [_output_row(output) for output in verdict.suffering]
        blocks.append(table(("output", "SQNR>", "agreement>", "max error>"), rows, "Outputs that suffer"))
    if verdict.worst:
        losses = [(worst.value, _decibels(worst.sqnr_db), worst.reason) for worst in verdict.worst]
        blocks.append(table(("value", "SQNR>", "why"), losses, "Values that lose most"))
    return Section(f"Verdict: {verdict.word}", tuple(blocks), f"verdict {verdict.word}")


def _stream_figures(stream: StreamErrors) -> str:
    """Figures of a stream in words."""

    def told(errors: OutputErrors) -> str:
        parts = [] if errors.sqnr_db is None else [_decibels(errors.sqnr_db)]
        parts += [] if errors.agreement is None else [f"agreement {percent(errors.agreement)}"]
        return ", ".join(parts) or "no figures"

    quarters = f"{told(stream.first)} in its first quarter, {told(stream.last)} in its last"
    return f"as a stream of {stream.calls} calls {quarters}"


def _meaning(verdict: ModelVerdict) -> str:
    """Advice that goes with the word."""
    return {
        GOOD: "The int8 model answers as the float model does.",
        SUSPICIOUS: "Compare accuracy on labelled data before you use it.",
        BROKEN: "Do not use it as it is.",
    }[verdict.word]


def _word(sqnr_db: float) -> str:
    return GOOD if sqnr_db >= GOOD_DB else SUSPICIOUS if sqnr_db >= BROKEN_DB else BROKEN


def _chooses_others(output: OutputError) -> bool:
    """Whether scores choose other classes than the float model's most of the time."""
    share = output.agreement if output.beyond_chance is None else output.beyond_chance
    return output.sqnr_db is not None and share is not None and share < MOST


def _answers_alike(output: OutputError) -> bool:
    """Whether probabilities answer as those of the float model do, so that their SQNR says less than that."""
    if output.sqnr_db is None or output.sqnr_db < BROKEN_DB:
        return False
    if output.probabilities:
        return output.beyond_chance is not None and output.beyond_chance >= ALIKE
    share, level = output.agreement, output.logarithms_db
    return share is not None and share >= NEARLY_ALL and level is not None and level >= GOOD_DB


def _level_that_excuses(output: OutputError) -> float | None:
    """SQNR of logarithms, in dB, that makes probabilities good although theirs is not; None for others."""
    excused = output.sqnr_db is not None and output.sqnr_db < GOOD_DB and _answers_alike(output)
    return output.logarithms_db if excused else None


def _suffers(output: OutputError) -> bool:
    if output.non_finite:
        return True
    if output.sqnr_db is not None:
        return _chooses_others(output) or (output.sqnr_db < GOOD_DB and not _answers_alike(output))
    return output.max_abs > 0.0 and (output.agreement is None or output.agreement < NEARLY_ALL)


def _level(output: OutputError) -> float:
    if output.non_finite:
        return -math.inf
    return math.inf if output.sqnr_db is None else output.sqnr_db


def _output_row(output: OutputError) -> tuple[str, str, str, str]:
    level = "none" if output.sqnr_db is None else _decibels(output.sqnr_db)
    if output.non_finite:
        level = f"{output.non_finite} NaN or infinite"
    share = "" if output.agreement is None else percent(output.agreement)
    return output.name, level, share, significant(output.max_abs)


def _decibels(value: float) -> str:
    return "infinite" if value == math.inf else decibels(value)
