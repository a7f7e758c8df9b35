"""What int16 activations gain in accuracy over int8, and what they cost in time.

From one profile, every model is quantized by its recipe, and by its recipe with `dtype: int16` for every
name. Both are measured against float on the same samples, which did not calibrate, and take turns with
qglow's float program on one thread, batch 1: on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from qglow import Model
from qglow.recipe.rules import Match, Rule
from qglow.report.bench import bench
from qglow.report.comparison import compare
from qglow.report.comparison_result import FLOAT, INT8, Comparison
from qglow.report.contenders import of_executable, random_inputs
from qglow.report.oracle import OnnxruntimeModel
from qglow.runtime.executable import Executable
from scripts.benchmarks.frame import (
    Benchmark,
    Outcome,
    add_alternations_option,
    add_limit_option,
    with_progress,
)
from scripts.benchmarks.models.evaluated import EvaluatedModel, chosen_models
from scripts.benchmarks.models.labelled import MODELS as LABELLED
from scripts.benchmarks.tables import conditions, markdown_table

MODELS = ("cifar10_resnet20", "mlkws_ds_cnn_l", "mlperftiny_resnet8", "mobilenet_v1_0.25_224")
INT16 = "int16"
ALL_INT16 = Rule(Match(name=".*"), dtype="int16")
TITLES = (
    "model",
    "samples",
    "SQNR of outputs, int8",
    "int16",
    "same class as float, int8",
    "int16",
    "time, int16 : int8",
    "float : int8",
)


@dataclass(frozen=True)
class Row:
    """One model: both programs against float, and times relative to int8."""

    model: str
    comparison: Comparison
    int16_time: float
    float_time: float

    def cells(self) -> tuple[str, ...]:
        """As in the table."""
        pairings = [self.comparison.pairing(name, FLOAT) for name in (INT8, INT16)]
        sqnrs = [f"{pairing.overall.sqnr_db:.2f} dB" for pairing in pairings]
        agreements = [p.agreement for p in pairings]
        shares = ["-" if a is None else f"{100.0 * a.top1:.1f} %" for a in agreements]
        times = (f"{self.int16_time:.2f}", f"{self.float_time:.2f}")
        return (self.model, str(self.comparison.samples), *sqnrs, *shares, *times)


def measure(model: EvaluatedModel, limit: int, alternations: int) -> Row:
    """Both programs, over at most `limit` samples."""
    loaded, recipe = model.load(), model.recipe
    profile = model.profile(loaded)
    wide = replace(recipe, rules=(*recipe.rules, ALL_INT16))
    programs = {
        INT8: loaded.quantize(profile, recipe).compile(threads=1),
        INT16: loaded.quantize(profile, wide).compile(threads=1),
    }
    comparison = compare(
        programs[INT8],
        OnnxruntimeModel(model.path, shapes=loaded.shapes),
        model.evaluation.read(model, loaded, limit),
        rivals={INT16: programs[INT16]},
    )
    return Row(model.name, comparison, *_times(loaded, programs, alternations))


def _times(loaded: Model, programs: dict[str, Executable], alternations: int) -> tuple[float, float]:
    """Of int16 and of float, relative to int8."""
    inputs = random_inputs(loaded.inputs)
    every = {**programs, FLOAT: loaded.compile(threads=1)}
    result = bench({name: of_executable(program, inputs) for name, program in every.items()}, alternations)
    return result.ratio(INT16, INT8).ratio, result.ratio(FLOAT, INT8).ratio


def _measure_all(options: argparse.Namespace) -> Outcome:
    models = with_progress(chosen_models(options.models, LABELLED))
    rows = [measure(model, options.limit, options.alternations).cells() for model in models]
    return Outcome(f"{markdown_table(TITLES, rows)}\n\nAt most {options.limit} samples. {conditions()}")


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_limit_option(parser, 1000)
    add_alternations_option(parser, 100)


BENCHMARK = Benchmark(__doc__, _measure_all, "int16", MODELS, _add_options)
