"""Options and arguments that several commands take, declared once, and how their text is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from qglow.api.options import (
    CALIBRATION,
    DATA,
    MODEL,
    OUTPUT,
    CustomOperatorOptions,
    LabelledOptions,
    SelectionOptions,
    TrustOptions,
)
from qglow.core.errors import InputFileError, UsageError
from qglow.core.options import Option, Writes, declare, option, options_of
from qglow.recipe import Recipe, load_recipe
from qglow.recipe.keywords import RecipeChoices
from qglow.recipe.readers import as_states

if TYPE_CHECKING:
    from qglow.api import CalibrationSamples
    from qglow.core.types import Array, Given

_DATA = Option(
    "Samples: images, .npy, .npz, ONNX test data or module:function",
    more="A folder of images needs a recipe that says how they become inputs. NAME.npz[input=key,label=key] "
    "names arrays; package.module:function calls a function that gives samples.",
    group=DATA,
    metavar="PATH",
    reads=True,
)
RECIPE = Option("Preprocessing and choices of quantization, as YAML", group=MODEL, metavar="FILE")
_PROFILE = Option("Profile to quantize an ONNX model with", group=MODEL, metavar="FILE")
SHAPES = Option(
    "Shape of an input, as input=1,3,224,224",
    group=MODEL,
    metavar="INPUT=SIZES",
    flags=("--shape",),
    typed=list[str],
)
VALUES = Option(
    "Value of an input, as input=1,3,224 or input=FILE.npy: it becomes a constant",
    group=MODEL,
    metavar="INPUT=NUMBERS",
    flags=("--value",),
    typed=list[str],
)
PROFILED_MODEL = Option(
    "The ONNX model [default: the profile's]", group=MODEL, metavar="[MODEL]", argument=True
)
MOVED_MODEL = Option(
    "File of a quantized directory's float model, if it has moved", group=MODEL, metavar="FILE"
)
STATES = Option(
    "Input that keeps an output for the next call, where names do not tell",
    group=MODEL,
    metavar="INPUT=OUTPUT",
    flags=("--state",),
    typed=list[str],
)
KEPT_STATES = Option(
    "Input that a bundle or --context keeps as state, with the output that its next run reads there",
    group=OUTPUT,
    metavar="INPUT=OUTPUT",
    flags=("--state",),
    typed=list[str],
)
_CALIBRATION_DATA = Option(
    "The samples that were profiled, to look at again", group=CALIBRATION, metavar="PATH", reads=True
)

_SIZE = re.compile(r"-?\d+|\d+\.\.\d+|[^\s.\d-][^\s.]*(?:\s*[+*]\s*[^\s.]+)*|\d+\s*[+*][^.]+")
_BY_X = re.compile(r"[\d.]+(x[\d.]+)+")

FIGURES = Option(
    "Write the figures, as JSON",
    group=OUTPUT,
    metavar="FILE",
    flags=("--output", "-o"),
    writes=Writes.FILE,
)
(TRUST,) = (item.option for item in options_of(TrustOptions) if item.name == "trust")
(CALIBRATION_METHOD,) = (item.option for item in options_of(Recipe) if item.name == "calibration")


@dataclass(frozen=True, kw_only=True)
class ModelOptions(CustomOperatorOptions):
    """An ONNX model and how its data is prepared."""

    model: Path = option(help="The ONNX model", argument=True, metavar="MODEL", group=MODEL)
    recipe: Path | None = declare(RECIPE, None)
    shapes: Sequence[str] = declare(SHAPES, ())
    values: Sequence[str] = declare(VALUES, ())


@dataclass(frozen=True, kw_only=True)
class TargetOptions(CustomOperatorOptions):
    """An ONNX model, or what was made of one."""

    target: Path = option(
        help="An ONNX model, or a directory that qglow quantize wrote",
        argument=True,
        metavar="TARGET",
        group=MODEL,
    )
    shapes: Sequence[str] = declare(SHAPES, ())
    values: Sequence[str] = declare(VALUES, ())


@dataclass(frozen=True, kw_only=True)
class GraphOptions(TargetOptions):
    """A target that may be quantized first."""

    profile: Path | None = declare(_PROFILE, None)
    recipe: Path | None = declare(RECIPE, None)


@dataclass(frozen=True, kw_only=True)
class MeasuredOptions(GraphOptions):
    """A target that is measured against its float model."""

    model: Path | None = declare(MOVED_MODEL, None)


@dataclass(frozen=True, kw_only=True)
class _NeededData:
    data: str = declare(_DATA)


@dataclass(frozen=True, kw_only=True)
class _PossibleData:
    data: str | None = declare(_DATA, None)


@dataclass(frozen=True, kw_only=True)
class DataOptions(SelectionOptions, _NeededData):
    """Data that the command needs."""


@dataclass(frozen=True, kw_only=True)
class PossibleDataOptions(SelectionOptions, _PossibleData):
    """Data that the command can do without."""


@dataclass(frozen=True, kw_only=True)
class LabelledDataOptions(LabelledOptions, _NeededData):
    """Data that the command needs, with labels."""


@dataclass(frozen=True, kw_only=True)
class OptionalDataOptions(LabelledOptions, _PossibleData):
    """Data that the command can do without, with labels."""


@dataclass(frozen=True, kw_only=True)
class _CalibrationChoice:
    calibration_select: str | None = option(
        None, "Calibration samples to use, as a Python slice", group=CALIBRATION, metavar="SLICE"
    )
    calibration_samples: int | None = option(
        None, "Use only the first N of these", group=CALIBRATION, metavar="N"
    )


@dataclass(frozen=True, kw_only=True)
class _NeededCalibration:
    calibration_data: str = declare(_CALIBRATION_DATA)


@dataclass(frozen=True, kw_only=True)
class _PossibleCalibration:
    calibration_data: str | None = declare(_CALIBRATION_DATA, None)


@dataclass(frozen=True, kw_only=True)
class RequiredCalibrationOptions(_CalibrationChoice, _NeededCalibration):
    """Calibration samples that the command needs."""


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(_CalibrationChoice, _PossibleCalibration):
    """Calibration samples that the command can do without."""

    def calibration(self) -> CalibrationSamples | None:
        """The samples. Raises UsageError where they are chosen from nothing."""
        from qglow.api import CalibrationSamples

        if self.calibration_data is not None:
            return CalibrationSamples(
                self.calibration_data, self.calibration_select, self.calibration_samples
            )
        if self.calibration_select is not None or self.calibration_samples is not None:
            raise UsageError("--calibration-select and --calibration-samples choose from --calibration-data")
        return None


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Shapes by input name from texts such as "input=1,3,224,224". Raises UsageError for others.

    >>> parse_shapes(["input=1,3,224,224", "mask=1x5"])
    {'input': (1, 3, 224, 224), 'mask': (1, 5)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or ():
        name, sizes = _shape(text)
        if not all(isinstance(size, int) for size in sizes):
            raise UsageError(f"--shape {text}: write INPUT=1,3,224,224")
        if name in shapes:
            raise UsageError(f"--shape {name} is given twice")
        shapes[name] = tuple(int(size) for size in sizes)
    return shapes


def parse_programs(texts: Sequence[str] | None) -> list[dict[str, tuple[int | str, ...]]]:
    """Shapes of programs, from texts of which each is one of an input in one program.

    An input that is named once has this shape in all programs. Raises UsageError for other texts, and where
    two inputs have several shapes, but not as many.

    >>> parse_programs(["ids=1,1..512", "ids=1,16", "image=1x3"])
    [{'ids': (1, '1..512'), 'image': (1, 3)}, {'ids': (1, 16), 'image': (1, 3)}]
    """
    found: dict[str, list[tuple[int | str, ...]]] = {}
    for name, sizes in map(_shape, texts or ()):
        found.setdefault(name, []).append(sizes)
    counts = {len(each) for each in found.values()} - {1}
    if len(counts) > 1:
        raise UsageError(
            "--shape: several shapes of inputs belong together in their order; "
            + ", ".join(f"'{name}' has {len(each)}" for name, each in found.items())
        )
    number = max(counts, default=min(len(found), 1))
    return [{name: each[min(i, len(each) - 1)] for name, each in found.items()} for i in range(number)]


def names_programs(texts: Sequence[str] | None) -> bool:
    """Whether shapes are those of several programs: ranges, sums, or several of one input."""
    read = [_shape(text) for text in texts or ()]
    several = len({name for name, _ in read}) < len(read)
    return several or any(isinstance(size, str) for _, sizes in read for size in sizes)


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """Name and sizes of an input: numbers, and texts of ranges and sums. Raises UsageError."""
    # The last equals sign: names may hold one, sizes do not.
    name, equals, given = text.rpartition("=")
    if _BY_X.fullmatch(given):
        given = given.replace("x", ",")
    sizes = [size.strip() for size in given.split(",")] if given else []
    if not (name and equals) or not all(map(_SIZE.fullmatch, sizes)):
        raise UsageError(f"--shape {text}: write INPUT=1,3,224,224, INPUT=1,1..512 or INPUT=1,past+new")
    return name, tuple(int(size) if size.lstrip("-").isdecimal() else size for size in sizes)


def parse_values(texts: Sequence[str] | None) -> dict[str, Given]:
    """Values by input name from texts such as "sizes=1,3,224", or the name of a file of one array.

    Raises UsageError for others, InputFileError for a file that cannot be read.

    >>> parse_values(["sizes=1,3", "ratio=0.5", "masked=true"])
    {'sizes': [1, 3], 'ratio': [0.5], 'masked': [True]}
    """
    values: dict[str, Given] = {}
    for text in texts or ():
        name, equals, given = text.rpartition("=")
        if not (name and equals):
            raise UsageError(f"--value {text}: write INPUT=1,3,224, or INPUT=FILE.npy")
        if name in values:
            raise UsageError(f"--value {name} is given twice")
        values[name] = _file(given) if given.endswith(".npy") else _numbers(text, given)
    return values


def parse_states(texts: Sequence[str]) -> dict[str, str]:
    """Outputs by the name of the input that reads them in the next call. Raises UsageError for other texts.

    >>> parse_states(["h=next_h"])
    {'h': 'next_h'}
    """
    try:
        return dict(as_states(texts))
    except ValueError as error:
        raise UsageError(f"--state {error}") from error


def _file(path: str) -> Array:
    from qglow.core.reading import load_array

    try:
        return load_array(Path(path))
    except (OSError, ValueError) as error:
        raise InputFileError(f"--value: cannot read {path}: {error}") from error


def _numbers(text: str, given: str) -> list[int | float | bool]:
    words = {"true": True, "false": False}
    numbers: list[int | float | bool] = []
    for part in given.split(",") if given else ():
        for read in (words.__getitem__, int, float):
            try:
                numbers.append(read(part.strip()))
                break
            except (KeyError, ValueError):
                continue
        else:
            raise UsageError(f"--value {text}: {part!r} is no number, true or false, and no .npy file")
    return numbers


def read_recipe(path: Path | None, **choices: Unpack[RecipeChoices]) -> Recipe:
    """The recipe of `--recipe` (defaults without one) under the choices that options gave."""
    recipe = Recipe() if path is None else load_recipe(path)
    return recipe.with_overrides(**choices)
