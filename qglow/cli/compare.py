"""qglow compare: the int8 model against onnxruntime on real data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qglow.api.options import LIMITS, MEASURE, OUTPUT, MetricOptions, RunOptions
from qglow.cli.hosted import tell_hosted
from qglow.cli.options import LabelledDataOptions, MeasuredOptions, read_recipe
from qglow.cli.output import note, say, show, showing_progress
from qglow.cli.targets import open_graph_target
from qglow.core.errors import UsageError
from qglow.core.options import Writes, option

if TYPE_CHECKING:
    from qglow.api import Executable, QuantizedModel

EXAMPLES = (
    "qglow compare model.quantized --data test/ --labels labels.csv --max-drop 0.5",
    "qglow compare model.onnx --profile profile.yaml --data test.npz --layers",
)


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions(MetricOptions):
    """Options of what is measured, and where it is written."""

    bundle: Path | None = option(
        None,
        "A bundle of the model, measured in place of the compiled program",
        group=MEASURE,
        metavar="DIR",
    )
    layers: bool = option(False, "Also measure every int8 node, and say what helps; slow", group=MEASURE)
    output: Path | None = option(
        None,
        "Directory to write the reports to as well",
        group=OUTPUT,
        metavar="DIR",
        flags=("--output", "-o"),
        writes=Writes.REPORTS,
    )


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """Limits that the comparison has to keep to."""

    max_drop: float | None = option(
        None,
        "Fail if top-1 accuracy drops by more percentage points than this",
        group=LIMITS,
        metavar="POINTS",
    )
    min_agreement: float | None = option(
        None, "Fail if fewer samples have the same best class than this", group=LIMITS, metavar="PERCENT"
    )
    min_sqnr: float | None = option(
        None, "Fail if the outputs' signal-to-noise ratio is lower than this", group=LIMITS, metavar="DB"
    )
    min_metric: float | None = option(
        None, "Fail if the metric is lower than this", group=LIMITS, metavar="VALUE"
    )
    max_metric: float | None = option(
        None,
        "Fail if a metric that is better the lower is higher than this",
        group=LIMITS,
        metavar="VALUE",
    )
    max_metric_drop: float | None = option(
        None, "Fail if the metric gets worse by more than this", group=LIMITS, metavar="VALUE"
    )


def compare(
    model: MeasuredOptions,
    data: LabelledDataOptions,
    limits: LimitOptions,
    running: RunOptions,
    measure: ComparisonOptions,
) -> None:
    """Measure an int8 model's accuracy against onnxruntime.

    TARGET is a quantized directory, or an ONNX model with --profile. It is compared with onnxruntime on
    the float model and on the exported QDQ model: errors, agreement and, with labels, accuracy. For an
    ONNX model that is quantized already, the first reference is onnxruntime on the same file.

    Exits with 1 if a limit is broken.
    """
    from qglow.api import check_limits
    from qglow.api import compare as compare_with_onnxruntime
    from qglow.report.comparison_result import comparison_section
    from qglow.report.diagnosis import diagnosis_section
    from qglow.report.layer_report import layer_section

    wanted = _limits(limits, measure.metric)
    loaded = _open(model, measure.layers)
    about = _about(model, data, running)
    bundle = None if measure.bundle is None else _open_bundle(measure.bundle, running)
    with showing_progress("comparing") as progress:
        comparison = compare_with_onnxruntime(
            loaded,
            data.data,
            labels=data.labels,
            metric=measure.metric,
            program=bundle,
            progress=progress,
            **about,
        )
    layers = diagnosis = None
    if measure.layers:
        layers, diagnosis = _by_layer(loaded, model, data.data, about)
    if measure.output is not None:
        loaded.save_report(
            measure.output, comparison=comparison, layers=layers, diagnosis=diagnosis, data=data.data
        )
    show(comparison_section(comparison))
    if bundle is None:
        tell_hosted(loaded, running)
    if layers is not None and diagnosis is not None:
        show(layer_section(layers), diagnosis_section(diagnosis))
    if measure.output is not None:
        say(f"{measure.output}: report.html, report.md, report.json")
    check_limits(comparison, wanted)


def _limits(limits: LimitOptions, metric: str | None) -> Any:
    from qglow.api import Limits

    of_metric = (limits.min_metric, limits.max_metric_drop, limits.max_metric)
    if metric is None and any(limit is not None for limit in of_metric):
        raise UsageError("--min-metric, --max-metric and --max-metric-drop need --metric")
    return Limits(limits.max_drop, limits.min_agreement, limits.min_sqnr, *of_metric)


def _open(model: MeasuredOptions, layers: bool) -> QuantizedModel:
    """The int8 model. Raises UsageError where there is none, and for options that do not apply."""
    from qglow.api import QuantizedModel
    from qglow.report.comparison_result import FLOAT

    target, is_directory = model.target, model.target.is_dir()
    if model.profile is not None and is_directory and not layers:
        raise UsageError(f"{target} is quantized already: --profile is for what --layers tries")
    profile = None if is_directory else model.profile
    recipe = None if is_directory else model.recipe
    loaded = open_graph_target(target, model.shapes, profile, recipe, model.model, values=model.values)
    if not isinstance(loaded, QuantizedModel):
        raise UsageError(
            f"{target} is a float model (add --profile, or name a quantized directory), or one in int8 with "
            "open shapes (add --shape)"
        )
    if loaded.report is not None and loaded.report.given:
        note(f"'{FLOAT}' below is onnxruntime on the model itself, which is quantized")
    return loaded


def _open_bundle(path: Path, running: RunOptions) -> Executable:
    from qglow.api import load_bundle

    if running.isa is not None:
        raise UsageError("a bundle has a target of its own: --isa does not go with --bundle")
    return load_bundle(path)


def _about(model: MeasuredOptions, data: LabelledDataOptions, running: RunOptions) -> dict[str, Any]:
    """Arguments that all measurements of one comparison share."""
    return {
        "recipe": None if model.recipe is None else read_recipe(model.recipe),
        "select": data.select,
        "samples": data.samples,
        "isa": running.isa,
        "threads": running.threads,
    }


def _by_layer(
    loaded: QuantizedModel, model: MeasuredOptions, data: str, about: dict[str, Any]
) -> tuple[Any, Any]:
    """The errors of all layers, and what helps against them."""
    from qglow.api import compare_layers, diagnose, load_profile

    with showing_progress("comparing layers") as progress:
        layers = compare_layers(loaded, data, progress=progress, **about)
    with showing_progress("diagnosing", unit="steps") as progress:
        profile = None if model.profile is None else load_profile(model.profile)
        return layers, diagnose(loaded, data, layers=layers, profile=profile, progress=progress, **about)
