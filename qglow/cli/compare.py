"""qglow compare: the int8 model against onnxruntime on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import Limits, QuantizedModel, check_limits, compare_layers, diagnose, load_profile
from qglow.api import compare as compare_with_onnxruntime
from qglow.cli.options import (
    FloatModelOption,
    IsaOption,
    LabelsOption,
    ProfileOption,
    RecipeOption,
    RequiredDataOption,
    SamplesOption,
    SelectOption,
    ShapeOption,
    TargetArgument,
    ThreadsOption,
    read_recipe,
)
from qglow.cli.output import note, say, show, showing_progress
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.report.comparison import FLOAT
from qglow.report.diagnosis_sections import diagnosis_section
from qglow.report.sections import comparison_section, layer_section


def compare(
    target: TargetArgument,
    data: RequiredDataOption,
    labels: LabelsOption = None,
    select: SelectOption = None,
    samples: SamplesOption = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Also the error of every int8 node, alone and accumulated; slow.")
    ] = False,
    profile: ProfileOption = None,
    recipe: RecipeOption = None,
    shape: ShapeOption = None,
    float_model: FloatModelOption = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", metavar="NAME", help="Measure this too: psnr, miou or module:function."),
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", metavar="POINTS", help="Fail when top-1 accuracy drops by more."),
    ] = None,
    min_agreement: Annotated[
        float | None,
        typer.Option("--min-agreement", metavar="PERCENT", help="Fail when fewer have the same best class."),
    ] = None,
    min_sqnr: Annotated[
        float | None, typer.Option("--min-sqnr", metavar="DB", help="Fail when the outputs have less SQNR.")
    ] = None,
    min_metric: Annotated[
        float | None, typer.Option("--min-metric", metavar="VALUE", help="Fail when the metric is less.")
    ] = None,
    max_metric_drop: Annotated[
        float | None,
        typer.Option("--max-metric-drop", metavar="VALUE", help="Fail when the metric drops by more."),
    ] = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the reports there too.")
    ] = None,
) -> None:
    """Measure an int8 model's accuracy.

    TARGET is a quantized directory, or an ONNX model with --profile. References are onnxruntime on
    the float model and on the exported QDQ model: errors, agreement and, with labels, accuracy.
    Where TARGET is an ONNX model that is quantized already, the first reference is onnxruntime on
    that very file.
    Exits with 1 when a limit is broken.
    """
    limits = Limits(max_drop, min_agreement, min_sqnr, min_metric, max_metric_drop)
    if metric is None and (min_metric is not None or max_metric_drop is not None):
        raise UsageError("--min-metric and --max-metric-drop need --metric")
    if profile is not None and target.is_dir() and not layers:
        raise UsageError(f"{target} is quantized already: --profile is for what --layers tries")
    taken = None if target.is_dir() else profile
    model = open_graph_target(target, shape, taken, None if target.is_dir() else recipe, float_model)
    if not isinstance(model, QuantizedModel):
        raise UsageError(f"{target} is a float model; add --profile, or name a quantized directory")
    if model.report is not None and model.report.given:
        note(f"'{FLOAT}' below is onnxruntime on the model itself, which is quantized")
    chosen = None if recipe is None else read_recipe(recipe)
    with showing_progress("comparing") as progress:
        comparison = compare_with_onnxruntime(
            model,
            data,
            recipe=chosen,
            select=select,
            samples=samples,
            labels=labels,
            metric=metric,
            isa=isa,
            threads=threads,
            progress=progress,
        )
    errors = found = None
    if layers:
        with showing_progress("comparing layers") as progress:
            errors = compare_layers(
                model,
                data,
                recipe=chosen,
                select=select,
                samples=samples,
                isa=isa,
                threads=threads,
                progress=progress,
            )
        with showing_progress("diagnosing", unit="steps") as progress:
            found = diagnose(
                model,
                data,
                layers=errors,
                profile=None if profile is None else load_profile(profile),
                recipe=chosen,
                select=select,
                samples=samples,
                isa=isa,
                threads=threads,
                progress=progress,
            )
    if output is not None:
        model.save_report(output, comparison=comparison, layers=errors, diagnosis=found, data=data)
    show(comparison_section(comparison))
    if errors is not None and found is not None:
        show(layer_section(errors), diagnosis_section(found))
    if output is not None:
        say(f"{output}: report.html, report.md, report.json")
    check_limits(comparison, limits)
