"""Formats of weights that were chosen layer by layer, and the recipe that says so."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.core.errors import UsageError
from qglow.core.files import write_atomically
from qglow.core.memory import parse_size
from qglow.core.progress import Progress, start
from qglow.display.blocks import Section, byte_count, decibels, table
from qglow.display.frames import frame
from qglow.display.shown import Shown
from qglow.quantization.choices import names_of
from qglow.recipe.choices import BlockFormat
from qglow.recipe.rules import Match, Rule
from qglow.recipe.schema import Recipe
from qglow.toolchain.calibration import CalibrationRuns, CalibrationSamples
from qglow.toolchain.loaded import LoadedModel
from qglow.toolchain.samples import Data
from qglow.tuning.sensitivity import decibels as level
from qglow.tuning.weight_formats import choose_formats, format_noises, layers_for_blocks

if TYPE_CHECKING:
    import pandas

SAMPLES = 8
"""Batches over which noise is measured."""
_BITS = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*bits?", re.ASCII)


@dataclass(frozen=True)
class WeightLayer:
    """A layer with the format of its weights.

    weights: their number. bytes: of codes, scales and zero points, as they are stored. noise: power by which
    it alone moves the outputs, over their power; narrow_noise: the same in the smallest format.
    """

    layer: str
    weights: int
    format: str
    bytes: int
    noise: float
    narrow_noise: float

    @property
    def bits(self) -> float:
        """Bits a weight, scales and zero points included."""
        return 8.0 * self.bytes / self.weights


@dataclass(frozen=True, repr=False)
class WeightMix(Shown):
    """Result of `mix_weights`: the format of every layer's weights. recipe: has a rule for each format.

    Layers whose format is wider than the narrowest are those that want more bits.
    """

    layers: tuple[WeightLayer, ...]
    recipe: Recipe

    def __repr__(self) -> str:
        return (
            f"WeightMix({len(self.layers)} layers, {byte_count(self.bytes)}, "
            f"{self.bits:.2f} bits a weight, SQNR {decibels(self.sqnr_db)} predicted)"
        )

    @property
    def bytes(self) -> int:
        """Bytes of all weights in blocks."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def bits(self) -> float:
        """Bits a weight, scales and zero points included."""
        return 8.0 * self.bytes / sum(layer.weights for layer in self.layers)

    @property
    def sqnr_db(self) -> float:
        """Predicted SQNR of the outputs in dB with weights rounded to the nearest."""
        return level(sum(layer.noise for layer in self.layers))

    def _sections(self) -> tuple[Section, ...]:
        titles = ("layer", "weights>", "format", "bits a weight>", "SQNR of it alone>", "in the smallest>")
        rows = [
            (x.layer, str(x.weights), x.format, f"{x.bits:.2f}", *map(decibels, _levels(x)))
            for x in sorted(self.layers, key=lambda x: -x.narrow_noise)
        ]
        caption = "Those that would harm the outputs most in the smallest format first"
        title = (
            f"{byte_count(self.bytes)} of weights, {self.bits:.2f} bits each with scales and zero points; "
            f"SQNR {decibels(self.sqnr_db)} predicted"
        )
        return (Section(title, (table(titles, rows, caption),)),)

    def to_frame(self) -> pandas.DataFrame:
        """One row for each layer. Raises UsageError if pandas is not installed."""
        columns = ("layer", "weights", "format", "bytes", "bits", "sqnr_db", "narrow_sqnr_db")
        return frame(
            columns, ((x.layer, x.weights, x.format, x.bytes, x.bits, *_levels(x)) for x in self.layers)
        )

    def save_recipe(self, path: str | Path) -> None:
        """Write the recipe, whole or not at all. Raises InputFileError if it cannot be written."""
        comment = (
            f"# Formats of weights by sensitivity: {self.bits:.2f} bits a weight, {self.bytes} bytes, "
            f"SQNR {decibels(self.sqnr_db)} predicted.\n"
        )
        write_atomically(Path(path), comment + self.recipe.to_yaml())


def find_weight_mix(
    model: LoadedModel,
    calibration: Data | CalibrationSamples,
    most: int | str,
    recipe: Recipe,
    enough_db: float | None = None,
    progress: Progress | None = None,
) -> WeightMix:
    """Choose a format for the weights of every layer, as `mix_weights` describes."""
    if model.is_quantized:
        raise UsageError(f"{model.place} is quantized already: its weights are given")
    graph = model.graph
    layers = [
        node
        for node in layers_for_blocks(graph)
        if recipe.keeps_float(names_of(node), node.operator.name) is None
    ]
    if not layers:
        raise UsageError(f"{model.place} has no layers whose weights can be in blocks")
    samples = CalibrationSamples.of(calibration, model.dimensions)
    runs = CalibrationRuns.of(graph, recipe, samples).spread(SAMPLES)
    measured = format_noises(graph, layers, runs, advance=start(progress, len(runs)))
    limit = byte_limit(most, sum(layer.weights for layer in measured))
    chosen = choose_formats(measured, limit, 0.0 if enough_db is None else 10.0 ** (-enough_db / 10.0))
    found = []
    for layer in measured:
        one = chosen[layer.layer]
        narrow = layer.formats[0].noise
        found.append(WeightLayer(layer.layer, layer.weights, str(one.form), one.bytes, one.noise, narrow))
    mix = WeightMix(tuple(found), with_formats(recipe, [(x.layer, chosen[x.layer].form) for x in found]))
    if enough_db is not None and mix.sqnr_db < enough_db:
        raise UsageError(
            f"weights of {limit} bytes give {decibels(mix.sqnr_db)} by prediction, less than "
            f"{enough_db:g} dB; allow more"
        )
    return mix


def byte_limit(most: int | str, weights: int) -> int:
    """Bytes that this many weights may take, by a size such as 64K, or "4.5 bits" for each.

    >>> byte_limit("4.5bits", 1000), byte_limit("2K", 1000)
    (562, 2048)

    Raises UsageError for what is neither.
    """
    match = _BITS.fullmatch(str(most).strip())
    if match is not None:
        return math.floor(float(match[1]) * weights / 8.0)
    try:
        return parse_size(str(most), "max size")
    except UsageError as error:
        raise UsageError(f"{error}, or bits a weight: 4.5bits") from error


def with_formats(recipe: Recipe, formats: Sequence[tuple[str, BlockFormat]]) -> Recipe:
    """The recipe with these formats of layers, by name, in rules behind its own."""
    names: dict[BlockFormat, list[str]] = {}
    for name, form in formats:
        names.setdefault(form, []).append(name)
    added = (
        Rule(Match(name="|".join(re.escape(name) for name in each)), weights=form)
        for form, each in sorted(names.items(), key=lambda item: str(item[0]))
    )
    weights = recipe.weights or BlockFormat(bits=8)
    return replace(recipe, weights=weights, rules=(*recipe.rules, *added))


def _levels(layer: WeightLayer) -> tuple[float, float]:
    return level(layer.noise), level(layer.narrow_noise)
