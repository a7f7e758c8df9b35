"""qglow quantize: an int8 model from a float model and its profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qglow.api import (
    CalibrationSamples,
    Model,
    Profile,
    compare,
    load_profile,
)
from qglow.cli.options import (
    DataOption,
    IsaOption,
    LabelsOption,
    RecipeOption,
    SamplesOption,
    SelectOption,
    ShapeOption,
    ThreadsOption,
    parse_smooth,
    read_recipe,
)
from qglow.cli.output import keeping, say, show, showing_progress, warn
from qglow.cli.targets import open_model, open_profiled_model
from qglow.core.errors import UsageError
from qglow.report.quantization_sections import quantization_sections
from qglow.report.sections import comparison_section

_SHOWN = ("Quantization", "Nodes in float")
"""Sections of the report that the command prints; the files have all of them."""

ModelOption = Annotated[
    Path | None, typer.Argument(metavar="[MODEL]", help="The ONNX model [default: the profile's].")
]
ProfileOption = Annotated[
    Path | None,
    typer.Option(
        "--profile", metavar="FILE", help="What qglow profile wrote; not for a model that is quantized."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="DIR", help="The directory to write [default: MODEL.quantized]."),
]


def quantize(
    model: ModelOption = None,
    profile: ProfileOption = None,
    recipe: RecipeOption = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="NAME",
            help="asymmetric, symmetric, symmetric_with_uint8 or symmetric_with_power2_scale.",
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option("--calibration", metavar="NAME", help="auto, minmax, kl, percentile:P or mse."),
    ] = None,
    per_tensor: Annotated[
        bool, typer.Option("--per-tensor", help="One scale a weight, not one an output channel.")
    ] = False,
    keep_float: Annotated[
        list[str] | None,
        typer.Option("--keep-float", metavar="NAME|re:...|op:...", help="What stays float. Repeatable."),
    ] = None,
    assert_all_quantized: Annotated[
        bool, typer.Option("--assert-all-quantized", help="Fail when a node would stay float.")
    ] = False,
    equalize: Annotated[
        bool | None,
        typer.Option("--equalize/--no-equalize", help="Scale channels where int8 then loses less."),
    ] = None,
    smooth: Annotated[
        str | None,
        typer.Option("--smooth", metavar="true|false|ALPHA", help="The same for channels of normalizations."),
    ] = None,
    profile_again: Annotated[
        bool | None,
        typer.Option(
            "--profile-again/--no-profile-again",
            help="Histograms of scaled channels from --calibration-data, not their ranges alone.",
        ),
    ] = None,
    correct_bias: Annotated[
        bool | None,
        typer.Option("--correct-bias/--no-correct-bias", help="Take errors of weights out of biases."),
    ] = None,
    io: Annotated[
        str | None, typer.Option("--io", metavar="NAME", help="Inputs and outputs: float or int8.")
    ] = None,
    rounding: Annotated[
        str | None, typer.Option("--rounding", metavar="NAME", help="Of weights: nearest, gptq or adaround.")
    ] = None,
    weight_range: Annotated[
        str | None,
        typer.Option("--weight-range", metavar="NAME", help="Of int8 weights: max, or mse to clip them."),
    ] = None,
    split_channels: Annotated[
        float | None,
        typer.Option(
            "--split-channels", metavar="SHARE", help="Channels to split that reach far beyond others: 0.02."
        ),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option(
            "--group-size", metavar="N", help="Inputs of a Gemm that share a scale of weights: 128."
        ),
    ] = None,
    rounding_budget: Annotated[
        str | None,
        typer.Option("--rounding-budget", metavar="TIME", help="When to begin no more layers: 90s, 10m, 1h."),
    ] = None,
    rounding_state: Annotated[
        Path | None,
        typer.Option("--rounding-state", metavar="FILE", help="Layers that are rounded, to go on from."),
    ] = None,
    effort: Annotated[
        str,
        typer.Option("--effort", metavar="NAME", help="For accuracy: fast, balanced or best."),
    ] = "fast",
    calibration_data: Annotated[
        str | None,
        typer.Option(
            "--calibration-data", metavar="PATH", help="The samples of the profile, for effort and rounding."
        ),
    ] = None,
    calibration_select: Annotated[
        str | None,
        typer.Option("--calibration-select", metavar="START:STOP:STEP", help="Which of them."),
    ] = None,
    calibration_samples: Annotated[
        int | None, typer.Option("--calibration-samples", metavar="N", help="Only the first N of these.")
    ] = None,
    activation_type: Annotated[
        str | None,
        typer.Option("--activation-type", metavar="NAME", help="In model.qdq.onnx: uint8 or int8."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail when a rule of the recipe fits nothing.")
    ] = False,
    data: DataOption = None,
    labels: LabelsOption = None,
    select: SelectOption = None,
    samples: SamplesOption = None,
    shape: ShapeOption = None,
    isa: IsaOption = None,
    threads: ThreadsOption = None,
    output: OutputOption = None,
) -> None:
    """Make an int8 model from a profile, or with the parameters that the model has.

    Writes a directory: model.qglow to run, model.qdq.onnx for other runtimes, reports. --profile
    is enough: the profile knows its model. A model that is quantized already (QuantizeLinear,
    DequantizeLinear, QLinearConv ...) takes no profile: its parameters are kept. With --data
    the int8 model is compared with onnxruntime, and the accuracy goes into the reports.
    """
    chosen = read_recipe(
        recipe,
        schema=schema,
        calibration=calibration,
        per_tensor=per_tensor or None,
        keep_float=keep_float or None,
        assert_all_quantized=assert_all_quantized or None,
        equalize=equalize,
        smooth=None if smooth is None else parse_smooth(smooth),
        profile_again=profile_again,
        correct_bias=correct_bias,
        io=io,
        activation_type=activation_type,
        rounding=rounding,
        weight_range=weight_range,
        split_channels=split_channels,
        group_size=group_size,
        rounding_budget=rounding_budget,
        strict=strict or None,
    )
    loaded, taken = _open(model, profile, shape)
    again = _calibration(calibration_data, calibration_select, calibration_samples)
    with showing_progress("quantizing", unit="steps") as progress, keeping(rounding_state):
        quantized = loaded.quantize(
            taken,
            chosen,
            effort=effort,
            calibration_data=again,
            rounding_state=rounding_state,
            isa=isa,
            threads=threads,
            progress=progress,
        )
    comparison = None
    if data is not None:
        with showing_progress("comparing") as progress:
            comparison = compare(
                quantized,
                data,
                select=select,
                samples=samples,
                labels=labels,
                isa=isa,
                threads=threads,
                progress=progress,
            )
    target = output or Path(f"{loaded.path.stem}.quantized")
    # Written before anything is printed: a reader such as `head` may go away early.
    quantized.save(target, comparison=comparison, data=data or "", isa=isa)
    if quantized.report is not None:
        warn(quantized.report.warnings)
        sections = quantization_sections(quantized.report)
        show(*(section for section in sections if section.title in _SHOWN))
    if comparison is not None:
        show(comparison_section(comparison))
    say(f"{target}: model.qglow, model.qdq.onnx, report.html, report.md, report.json")


def _calibration(data: str | None, select: str | None, samples: int | None) -> CalibrationSamples | None:
    if data is not None:
        return CalibrationSamples(data, select, samples)
    if select is not None or samples is not None:
        raise UsageError("--calibration-select and --calibration-samples choose from --calibration-data")
    return None


def _open(model: Path | None, profile: Path | None, shape: list[str] | None) -> tuple[Model, Profile | None]:
    """The model with the shapes that it was profiled with, and its profile where one is named."""
    if profile is None:
        if model is None:
            raise UsageError("name a MODEL that is quantized already, or --profile")
        return open_model(model, shape), None
    taken = load_profile(profile)
    return open_profiled_model(model, taken, profile, shape), taken
