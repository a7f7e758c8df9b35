"""A profile: what a model's float values looked like over a data set, and whose values they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qglow.core.errors import ModelError, ProfileError, UsageError
from qglow.core.model_place import IN_MEMORY, ModelPlace
from qglow.core.types import Given, Shape
from qglow.display.blocks import Section, facts, percent, significant, table
from qglow.display.frames import frame
from qglow.display.lines import brief, counted, near
from qglow.display.plain import to_plain
from qglow.display.plots import draw_histogram
from qglow.display.shown import Shown
from qglow.graph.fingerprint import fingerprint, structural_ids
from qglow.graph.graph import Graph
from qglow.graph.rewriting import UNMOVED
from qglow.profiling.distribution import Distribution
from qglow.profiling.given import written_values
from qglow.profiling.histogram import ValueProfile
from qglow.profiling.kept import merge_kept
from qglow.profiling.nodes import profiled_values
from qglow.profiling.samples import DataDigest, Sample
from qglow.recipe.data import Preprocessing
from qglow.recipe.matching import means

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

_COLUMNS = ("value", "elements", "min", "max", "zeros", "infinities", "nans")
_NAMED = 3
"""Number of differing values that an error names."""


@dataclass(frozen=True)
class ModelReference:
    """Model that a profile was taken of: its file or its bytes, their digest, and values of its inputs.

    place: a path is absolute or relative to the working directory. None for a model that was given in memory
    and is no longer there, because what was made of it comes from a file. values: of inputs that became
    constants, by name.
    """

    place: ModelPlace | None
    sha256: str
    values: Mapping[str, Given] = field(default_factory=dict, compare=False)

    @property
    def path(self) -> Path | None:
        """The model's file; None for a model that was given in memory."""
        return self.place if isinstance(self.place, Path) else None

    @property
    def name(self) -> str:
        """The file's name, or what stands for it."""
        return IN_MEMORY if self.path is None else self.path.name

    @property
    def required(self) -> ModelPlace:
        """The file or the bytes. Raises ModelError where there are none."""
        if self.place is None:
            raise ModelError("the float model was given in memory and is in no file; give it again (`model`)")
        return self.place


@dataclass(frozen=True)
class ProfiledValue:
    """Statistics of one value, and the name it had."""

    name: str
    statistics: ValueProfile


@dataclass(frozen=True, repr=False)
class Profile(Shown):
    """Statistics of every float value of a canonical graph over a data set.

    model: the model's file and its digest. fingerprint: that of the canonical graph. samples: number of
    samples. data: digest of them. shapes: the model's input shapes as they were bound, with batch 1.
    preprocessing: that of the samples; None for arrays as they are. values: statistics by structural id.
    kept: samples as the model takes them, without a batch axis: those whose digests, which are their keys,
    are the smallest. keep_samples: how many there may be. kept_note: a sentence on why there are none,
    where that needs one.
    """

    model: ModelReference
    fingerprint: str
    samples: int
    data: DataDigest
    shapes: Mapping[str, Shape]
    preprocessing: Preprocessing | None
    values: Mapping[str, ProfiledValue]
    kept: tuple[Sample, ...] = ()
    keep_samples: int = 0
    kept_note: str = ""

    @staticmethod
    def of_no_samples(model: ModelReference, graph: Graph) -> Profile:
        """The profile of a graph that nothing was run over: for models that need no ranges."""
        shapes = {value.name: value.type.shape for value in graph.inputs}
        return Profile(model, fingerprint(graph), 0, DataDigest(), shapes, None, {})

    def __repr__(self) -> str:
        values, samples = counted(len(self.values), "value"), counted(self.samples, "sample")
        return f"Profile({brief(self.model.name)!r}: {values} over {samples}, keeps {len(self.kept)})"

    def _sections(self) -> tuple[Section, ...]:
        known = [
            ("fingerprint", self.fingerprint),
            ("samples", f"{self.samples}, of which {len(self.kept)} are kept"),
            *((f"input {name}", f"{list(shape)}") for name, shape in self.shapes.items()),
        ]
        rows = (
            (name, significant(low), significant(high), percent(zeros / (total or 1)), str(infinite + nans))
            for name, total, low, high, zeros, infinite, nans in self._rows()
        )
        titles = ("value", "min>", "max>", "zeros>", "NaN or infinite>")
        return (Section(f"Profile of {self.model.name}", (facts(known), table(titles, rows))),)

    def _rows(self) -> Iterator[tuple[str, int, float, float, int, int, int]]:
        """Name, elements, extremes, zeros, infinities and NaN of each value."""
        for value in self.values.values():
            seen = value.statistics
            zeros, infinities, nans = seen.zero_count, seen.infinity_count, seen.nan_count
            yield value.name, seen.total, seen.low, seen.high, zeros, infinities, nans

    def to_dict(self) -> dict[str, Any]:
        """Facts of the model, the data and each value for JSON, without counts."""
        return {
            "model": {"path": None if self.model.path is None else str(self.model.path)}
            | {"sha256": self.model.sha256},
            "fingerprint": self.fingerprint,
            "samples": self.samples,
            "kept": len(self.kept),
            "data_sha256": self.data.hex,
            "shapes": to_plain(self.shapes),
            "preprocessing": to_plain(self.preprocessing),
            "values": [to_plain(dict(zip(_COLUMNS, row, strict=True))) for row in self._rows()],
        }

    def to_frame(self) -> pandas.DataFrame:
        """One row for each value, in the order of the graph. Raises UsageError if pandas is not installed."""
        return frame(_COLUMNS, self._rows())

    def plot(self, value: str, axes: Axes | None = None, *, bins: int = 100) -> Axes:
        """Draw the histogram of a value. The int8 model's `plot` also has the range that was chosen.

        axes: where to draw (default: a new figure). Raises UsageError for a name that is not there, and if
        matplotlib is not installed.
        """
        known = self.by_name()
        found = value if value in known else next((name for name in known if means(value, name)), None)
        if found is None:
            raise UsageError(f"the profile has no value '{value}'{near(value, known)}", field="value")
        value = found
        edges, counts = [0.0, 0.0], [0.0]
        if known[value].total:
            distribution = Distribution.of(known[value])
            low, high = distribution.range
            if low < high:
                edges = [low + (high - low) * number / bins for number in range(bins + 1)]
                counts = [float(count) for count in distribution.linear_histogram(bins, low, high)]
        return draw_histogram(axes, value, edges, counts, None)

    def by_name(self) -> dict[str, ValueProfile]:
        """Statistics by the name that the value had when it was profiled."""
        return {value.name: value.statistics for value in self.values.values()}

    def at_other_shapes(self, graph: Graph) -> dict[str, ValueProfile]:
        """Statistics by the names of `graph`, the profiled computation at any shapes of its inputs.

        Structural ids differ then, and names are the same; of values that are computed alike the profile
        knows one name. Sizes of 1 let more operators move in front of what moves elements about: such
        a value has the elements of the one that it is named after.
        """
        known, ids, values = self.by_name(), structural_ids(graph), profiled_values(graph)
        placed = {_placed(name): replace(seen, channels=None) for name, seen in known.items()}
        alike = {
            ids[value]: placed[_placed(name)] for name, value in values.items() if _placed(name) in placed
        }
        alike |= {ids[value]: known[name] for name, value in values.items() if name in known}
        return {name: alike[ids[value]] for name, value in values.items() if ids[value] in alike}

    def check_matches(self, graph: Graph) -> dict[str, ValueProfile]:
        """Statistics by the names of `graph`, a canonical graph of the same computation.

        Raises ProfileError, naming the first values that differ, where the profile is stale.
        """
        ids = structural_ids(graph)
        values = profiled_values(graph)
        wanted = {ids[value]: name for name, value in values.items()}
        missing = [name for key, name in wanted.items() if key not in self.values]
        extra = [value.name for key, value in self.values.items() if key not in wanted]
        if not missing and not extra:
            return {name: self.values[ids[value]].statistics for name, value in values.items()}
        parts = []
        if missing:
            parts.append(f"has nothing on {_listed(missing)} as the model computes it now")
        if extra:
            parts.append(f"has {_listed(extra)}, which the model no longer computes that way")
        raise ProfileError(f"the profile is stale: it {' and '.join(parts)}; profile the model again")


def _placed(name: str) -> str:
    """The name of a value with its elements in their places, for that of one before they are moved."""
    while name.endswith(UNMOVED):
        name = name.removesuffix(UNMOVED)
    return name


def merge(profiles: Sequence[Profile]) -> Profile:
    """One profile of all the data. Raises ProfileError if models or settings differ.

    It keeps as many samples as the profile that may keep the most of them.
    """
    if not profiles:
        raise ProfileError("there is no profile to merge")
    first = profiles[0]
    for number, other in enumerate(profiles[1:], start=2):
        _check_mergeable(first, other, number)
    values = {key: ProfiledValue(v.name, _sum(profiles, key)) for key, v in first.values.items()}
    digest = DataDigest()
    for profile in profiles:
        digest.merge(profile.data)
    limit = max(profile.keep_samples for profile in profiles)
    return replace(
        first,
        samples=sum(p.samples for p in profiles),
        data=digest,
        values=values,
        kept=merge_kept([profile.kept for profile in profiles], limit),
        keep_samples=limit,
        kept_note=" ".join(dict.fromkeys(p.kept_note for p in profiles if p.kept_note)),
    )


def _sum(profiles: Sequence[Profile], key: str) -> ValueProfile:
    total = ValueProfile()
    channels = profiles[0].values[key].statistics.channels
    if channels is not None:
        total.channels = channels.empty(channels.axis, channels.low.size)
    for profile in profiles:
        try:
            total.merge(profile.values[key].statistics)
        except ValueError as error:
            name = profile.values[key].name
            raise ProfileError(f"profiles cannot be merged: at value '{name}' {error}") from error
    return total


def _check_mergeable(first: Profile, other: Profile, number: int) -> None:
    differing = [
        what
        for what, a, b in (
            ("model (sha256)", first.model.sha256, other.model.sha256),
            ("graph", first.fingerprint, other.fingerprint),
            ("input shapes", dict(first.shapes), dict(other.shapes)),
            ("values of inputs", written_values(first.model.values), written_values(other.model.values)),
            ("preprocessing", first.preprocessing, other.preprocessing),
            ("values", set(first.values), set(other.values)),
        )
        if a != b
    ]
    if differing:
        raise ProfileError(
            f"profiles cannot be merged: number {number} has another {' and '.join(differing)} than the first"
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{shown} and {more} more values" if more > 0 else shown
