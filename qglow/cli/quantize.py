"""qglow quantize: an int8 model from a float model and its profile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qglow.api.options import LIMITS, MODEL, OUTPUT, CustomOperatorOptions, RepairOptions, RunOptions
from qglow.cli.hosted import tell_hosted
from qglow.cli.options import (
    PROFILED_MODEL,
    RECIPE,
    SHAPES,
    VALUES,
    CalibrationOptions,
    OptionalDataOptions,
    names_programs,
    parse_programs,
    read_recipe,
)
from qglow.cli.output import end_if_interrupted, keeping, notes, say, show, showing_progress, warn
from qglow.cli.targets import open_model, open_profiled_model
from qglow.core.errors import UnboundError, UsageError
from qglow.core.options import Writes, declare, option
from qglow.recipe.keywords import RecipeChoices

if TYPE_CHECKING:
    from qglow.api import Comparison, Model, Profile, QuantizedModel

EXAMPLES = (
    "qglow quantize --profile profile.yaml --data test/ --labels labels.csv",
    "qglow quantize --profile profile.yaml --effort balanced --calibration-data calibration/",
)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(CustomOperatorOptions):
    """The model, and where its ranges come from."""

    model: Path | None = declare(PROFILED_MODEL, None)
    profile: Path | None = option(
        None, "The profile; a quantized model needs none", group=MODEL, metavar="FILE"
    )
    recipe: Path | None = declare(RECIPE, None)
    shapes: tuple[str, ...] = declare(SHAPES, ())
    values: tuple[str, ...] = declare(VALUES, ())


@dataclass(frozen=True, kw_only=True)
class WorkOptions(CalibrationOptions, RepairOptions):
    """Effort that is spent on accuracy, and the samples for it."""


@dataclass(frozen=True, kw_only=True)
class RunAndOutputOptions(RunOptions):
    """Options of how programs run, and where the result goes."""

    output: Path | None = option(
        None,
        "The directory to write [default: MODEL.quantized]",
        group=OUTPUT,
        metavar="DIR",
        flags=("--output", "-o"),
        writes=Writes.FOLDER,
    )


@dataclass(frozen=True, kw_only=True)
class QualityOptions:
    """Limits that the verdict has to keep to."""

    min_sqnr: float | None = option(
        None,
        "Fail if the verdict's SQNR is lower than this",
        more="The directory is written all the same. --strict fails where the verdict is not good.",
        group=LIMITS,
        metavar="DB",
    )


def quantize(
    source: SourceOptions,
    choices: RecipeChoices,
    work: WorkOptions,
    limits: QualityOptions,
    data: OptionalDataOptions,
    running: RunAndOutputOptions,
) -> None:
    """Make an int8 model from a float model and its profile.

    Writes a directory: model.qglow to run, model.qdq.onnx for other runtimes, and reports. --profile is
    enough, since the profile knows its model. A model that is quantized already keeps its parameters;
    --dynamic and --weights need none. The verdict comes from running float and int8 over the samples that
    the profile keeps. With --data the int8 model is compared with onnxruntime.
    model.qglow has programs for several --shape, or ranges as ids=1,1..512.
    """
    chosen = read_recipe(source.recipe, **choices)
    loaded, profile = _open(source)
    if profile is None and limits.min_sqnr is not None:
        raise UsageError(
            f"min_sqnr: without a profile of {loaded.path} there is no verdict",
            field="min_sqnr",
        )
    from qglow.core.model_place import stem_of

    stopped: list[str] = []
    with (
        showing_progress("quantizing", unit="steps") as progress,
        keeping(work.rounding_state),
        _of_profiles(profile),
    ):
        quantized = loaded.quantize(
            profile,
            chosen,
            effort=work.effort,
            scheduler=work.scheduler,
            repair=work.repair,
            calibration_data=work.calibration(),
            rounding_state=work.rounding_state,
            isa=running.isa,
            threads=running.threads,
            progress=progress,
            interrupted=stopped.append,
        )
    comparison = None if stopped else _compare(quantized, data, running)
    target = running.output or Path(f"{stem_of(quantized.source.required)}.quantized")
    # Written before anything is printed: a reader such as `head` may go away early.
    lacking = quantized.save(
        target,
        comparison=comparison,
        data=data.data or "",
        isa=running.isa,
        shapes=parse_programs(source.shapes) if names_programs(source.shapes) else None,
    )
    _tell_sizes(loaded, quantized)
    _show(quantized, comparison)
    tell_hosted(quantized, running)
    notes(lacking)
    say(f"{target}: model.qglow, model.qdq.onnx, report.html, report.md, report.json")
    end_if_interrupted(stopped, f"{target} has what was done until then")
    if quantized.verdict is not None:
        quantized.verdict.require(limits.min_sqnr, strict=quantized.recipe.strict)


@contextlib.contextmanager
def _of_profiles(profile: Profile | None) -> Iterator[None]:
    """Say that a profile has shapes, where there is none and they are missing."""
    try:
        yield
    except UnboundError as error:
        if profile is not None:
            raise
        raise UsageError(f"{error}, or give --profile, which has the shapes of its data") from error


def _open(source: SourceOptions) -> tuple[Model, Profile | None]:
    """The model with the shapes that it was profiled with, and its profile if one is named."""
    from qglow.api import load_profile

    several = names_programs(source.shapes)
    shapes = () if several else source.shapes
    if source.profile is None:
        if source.model is None:
            raise UsageError(
                "name a MODEL that is quantized already, or one with --dynamic or --weights, or --profile"
            )
        model = open_model(source.model, shapes, values=source.values)
        return (_largest(model, source.shapes) if several else model), None
    profile = load_profile(source.profile)
    return open_profiled_model(source.model, profile, source.profile, shapes, source.values), profile


def _tell_sizes(loaded: Model, quantized: QuantizedModel) -> None:
    """Say which sizes were chosen for a model whose file and options leave them open."""
    try:
        _ = loaded.shapes
    except UnboundError:
        sizes = {
            name: size
            for key, kind in quantized.inputs.items()
            for name, size in zip(loaded.dimensions[key] or (), kind.shape, strict=False)
            if isinstance(name, str)
        }
        chosen = ", ".join(f"{name} {size}" for name, size in sizes.items())
        notes([f"model.qglow is for the sizes {chosen}; others with --shape"])


def _largest(model: Model, shapes: Sequence[str]) -> Model:
    """The model with the largest of several shapes, whose int8 graph the directory has."""
    from qglow.toolchain.shape_choices import chosen_shapes

    return model.at(chosen_shapes(model.dimensions, {}, parse_programs(shapes)).largest)


def _compare(quantized: QuantizedModel, data: OptionalDataOptions, running: RunOptions) -> Comparison | None:
    from qglow.api import compare

    if data.data is None:
        return None
    with showing_progress("comparing") as progress:
        return compare(
            quantized,
            data.data,
            select=data.select,
            samples=data.samples,
            labels=data.labels,
            isa=running.isa,
            threads=running.threads,
            progress=progress,
        )


def _show(quantized: QuantizedModel, comparison: Comparison | None) -> None:
    from qglow.report.comparison_result import comparison_section
    from qglow.report.quantization_sections import short_sections
    from qglow.report.verdict import verdict_section

    if quantized.verdict is not None:
        show(verdict_section(quantized.verdict))
        if not quantized.verdict.is_good:
            warn([f"the int8 model is {quantized.verdict}"])
    if quantized.report is not None:
        warn(quantized.report.warnings)
        show(*short_sections(quantized.report))
    if comparison is not None:
        show(comparison_section(comparison))
