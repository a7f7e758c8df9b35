"""What single options of quantization, over the recipe of each model, make of the SQNR of the outputs.

    python scripts/measure_options.py [--models NAME ...] [--limit N] [--update-readme]

Every int8 model is made from the same profile with effort fast and measured on the same other samples.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from evaluated_models import EvaluatedModel, chosen_models
from measuring import Outcome, option_parser, run, with_progress
from readme_tables import conditions, markdown_table

from qglow import CalibrationSamples
from qglow.recipe.choices import Calibration
from qglow.report.comparison import FLOAT, INT8, compare
from qglow.report.oracle import OnnxruntimeModel
from qglow.report.runner import Runner

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
    loaded, split = model.load(), model.calibration
    profile = model.profile(loaded)
    samples = CalibrationSamples(model.root / split.data, split.select, split.samples)
    programs = {
        title: loaded.quantize(
            profile,
            replace(model.recipe, **changes),  # type: ignore[arg-type]
            calibration_data=samples if "rounding" in changes else None,
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = option_parser(__doc__, list(SMALL))
    parser.add_argument("--limit", type=int, default=500, metavar="N", help="samples, at most")
    return run("options", parser, _measure_all, arguments)


def _measure_all(options: argparse.Namespace) -> Outcome:
    models = with_progress(chosen_models(options.models))
    rows = [(m.name, *(f"{value:.2f}" for value in measure(m, options.limit))) for m in models]
    table = markdown_table(("model", *OPTIONS), rows)
    return Outcome(f"{table}\n\nAt most {options.limit} samples. {conditions()}")


if __name__ == "__main__":
    sys.exit(main())
