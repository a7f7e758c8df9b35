"""Rows of the benchmark of defaults: figures of each program, the table, the summary and the file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scripts.benchmarks.frame import json_document
from scripts.benchmarks.rivals.cache import all_tools, title_of
from scripts.benchmarks.rivals.quantize import DYNAMIC
from scripts.benchmarks.tables import markdown_table

DEFAULT = "default"
PLAIN = ("minmax", "percentile:99.99", "mse", "kl")
"""Calibrations that the defaults are held to."""
LIMIT = 0.5
"""Decibels of SQNR that the default may be behind the best of PLAIN."""
BROKEN = 6.0
"""Decibels below which a model is broken, and must not call itself good."""
WITHOUT_RANGES = title_of(DYNAMIC)
"""The tool that measures ranges while the model runs: it rounds what products read, and nothing else."""
MOST = 100.0
"""Decibels that a difference counts at most: what does not differ has infinitely many."""


@dataclass(frozen=True)
class Figures:
    """One int8 program against float: the smallest SQNR of the float outputs in dB, and the share of samples
    with the same best class in per cent, None where there are no classes.

    seconds: processor time of quantizing. int8, nodes: how many nodes are int8, and all of them. int8_work:
    share of the multiply-adds that is in int8, 0 to 1. Each is None for other tools.
    """

    sqnr_db: float
    agreement: float | None
    seconds: float | None = None
    int8: int | None = None
    nodes: int | None = None
    int8_work: float | None = None


@dataclass(frozen=True)
class Row:
    """One model: figures of qglow's default, of its plain methods by name, and of other tools by title.

    judged: which samples judged it, in words. calibrated, samples: how many calibrated and judged. verdict:
    the word that the default has for itself; None where it has none. What failed has no figures.
    """

    model: str
    judged: str
    calibrated: int
    samples: int
    default: Figures
    plain: Mapping[str, Figures]
    others: Mapping[str, Figures]
    verdict: str | None = None

    @property
    def gain(self) -> float | None:
        """Decibels of the default over the best plain method; None without one."""
        return _over(self.default, self.plain.values())

    @property
    def lead(self) -> float | None:
        """Decibels of the default over the best other tool with ranges from samples; None without one."""
        return _over(self.default, [each for title, each in self.others.items() if title != WITHOUT_RANGES])

    def cells(self) -> tuple[str, ...]:
        """As in the table."""
        return (
            self.model,
            self.judged,
            f"{self.calibrated} / {self.samples}",
            _cell(self.default),
            *(_cell(self.plain.get(name)) for name in PLAIN),
            *(_cell(self.others.get(title_of(name))) for name in all_tools()),
            _signed(self.gain),
            _signed(self.lead),
            self.verdict or "-",
        )


def to_markdown(rows: Sequence[Row]) -> str:
    """The table of the documentation."""
    titles = ("model", "judged on", "samples", DEFAULT, *PLAIN, *map(title_of, all_tools()))
    body = [row.cells() for row in rows]
    return markdown_table((*titles, "over plain", "over others", "verdict"), body)


def summary(rows: Sequence[Row]) -> str:
    """One line: how many models, how many below the limit, and the means."""
    gains = [row.gain for row in rows if row.gain is not None]
    leads = [row.lead for row in rows if row.lead is not None]
    below = sum(gain < -LIMIT for gain in gains)
    parts = [f"{len(rows)} models", f"{below} more than {LIMIT:g} dB below their best plain method"]
    if gains:
        parts.append(f"in the mean {_mean(gains):+.2f} dB over it")
    if leads:
        ahead = sum(lead > 0.0 for lead in leads)
        parts.append(f"{_mean(leads):+.2f} dB over the best other tool of each, ahead on {ahead}")
    return ", ".join(parts)


def failures(rows: Sequence[Row]) -> list[str]:
    """A line for each model that is below the limit or broken and called good, and one where other tools are
    ahead in the mean."""
    lines = [
        f"{row.model}: {-row.gain:.2f} dB below {_best(row.plain)} (limit {LIMIT:g})"
        for row in rows
        if row.gain is not None and row.gain < -LIMIT
    ]
    lines += [
        f"{row.model}: called good at {row.default.sqnr_db:.1f} dB"
        for row in rows
        if row.verdict == "good" and row.default.sqnr_db < BROKEN
    ]
    leads = [row.lead for row in rows if row.lead is not None]
    if leads and _mean(leads) <= 0.0:
        lines.append(f"the best other tool is {-_mean(leads):.2f} dB ahead in the mean")
    return lines


def to_json(rows: Iterable[Row]) -> str:
    """The same as data."""
    return json_document(models=[asdict(row) for row in rows])


def row_of(fields: dict[str, Any]) -> Row:
    """Make a row of what `to_json` wrote of it."""
    groups = {
        group: {name: Figures(**numbers) for name, numbers in fields[group].items()}
        for group in ("plain", "others")
    }
    return Row(**{**fields, **groups, "default": Figures(**fields["default"])})


def _over(default: Figures, rivals: Iterable[Figures]) -> float | None:
    best = max((min(each.sqnr_db, MOST) for each in rivals), default=None)
    return None if best is None else max(min(default.sqnr_db, MOST), -MOST) - max(best, -MOST)


def _best(figures: Mapping[str, Figures]) -> str:
    return max(figures, key=lambda name: figures[name].sqnr_db)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _cell(figures: Figures | None) -> str:
    if figures is None:
        return "fails"
    return f"{figures.sqnr_db:.1f}" + ("" if figures.agreement is None else f" / {figures.agreement:.1f}")


def _signed(decibels: float | None) -> str:
    return "-" if decibels is None else f"{decibels:+.1f}"
