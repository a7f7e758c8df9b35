"""What single options of quantization, over the recipe of each model, make of the SQNR of the outputs.

Every int8 model is made from the same profile with effort fast and measured on the same other samples.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from qglow.recipe.choices import Calibration
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import Runner
from scripts.benchmarks.frame import Benchmark, Outcome, add_limit_option, with_progress
from scripts.benchmarks.models.evaluated import EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS as LABELLED
from scripts.benchmarks.tables import conditions, markdown_table

SMALL = ("digits", "cifar10_resnet20", "mlkws_ds_cnn_l", "mlperftiny_resnet8", "mlkws_dnn_l", "mnist_8")
OPTIONS: dict[str, dict[str, object]] = {
    "recipe": {},
    "weight_range: mse": {"weight_range": "mse"},
    "group_size: 64": {"group_size": 64},
    "split_channels: 0.02": {"split_channels": 0.02},
    "split_channels: 0.05": {"split_channels": 0.05},
    "minmax": {"calibration": Calibration("minmax")},
    "minmax, split 0.05": {"calibration": Calibration("minmax"), "split_channels": 0.05},
    "rounding: gptq": {"rounding": "gptq"},
    "rounding: adaround": {"rounding": "adaround"},
    "adaround, weight_range: mse": {"rounding": "adaround", "weight_range": "mse"},
}
"""What is set, by the title of its column."""


def measure(model: EvaluatedModel, limit: int) -> list[float]:
    """SQNR in dB for each of OPTIONS."""
    loaded = model.load()
    profile = model.profile(loaded)
    programs = {
        title: loaded.quantize(
            profile,
            replace(model.recipe, **changes),  # type: ignore[arg-type]
            calibration_data=model.calibration_samples if "rounding" in changes else None,
        ).compile()
        for title, changes in OPTIONS.items()
    }
    first, *others = OPTIONS
    rivals: dict[str, Runner] = {title: programs[title] for title in others}
    comparison = compare(
        programs[first],
        OnnxruntimeModel(model.path, shapes=loaded.shapes),
        model.evaluation.read(model, loaded, limit),
        rivals=rivals,
    )
    return [comparison.pairing(title, FLOAT).overall.sqnr_db for title in (INT8, *others)]


def _measure_all(options: argparse.Namespace) -> Outcome:
    models = with_progress(chosen_models(options.models, LABELLED))
    rows = [(m.name, *(f"{value:.2f}" for value in measure(m, options.limit))) for m in models]
    table = markdown_table(("model", *OPTIONS), rows)
    return Outcome(f"{table}\n\nAt most {options.limit} samples. {conditions()}")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_limit_option(parser, 500)


BENCHMARK = Benchmark(__doc__, _measure_all, "options", SMALL, _add_options)
