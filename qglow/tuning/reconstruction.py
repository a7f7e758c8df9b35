"""Rounding of weights that minimises errors on the calibration samples."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qglow.core.errors import UsageError
from qglow.core.interruption import Interruption
from qglow.core.progress import Progress, start
from qglow.core.types import Array
from qglow.core.version import __version__
from qglow.graph.fingerprint import fingerprint
from qglow.graph.graph import Graph, Value
from qglow.numerics.quantize import quantize_by
from qglow.quantization.pipeline import QuantizedGraph
from qglow.quantization.reconstruction import block_products_of, round_blocks, round_weights, scale_inputs
from qglow.quantization.reconstruction.rounding import rounded_nodes
from qglow.quantization.reconstruction.state import load_rounding
from qglow.quantization.tied_tables import follow_products
from qglow.recipe.schema import Recipe
from qglow.toolchain import CompileOptions
from qglow.toolchain.calibration import CalibrationRuns, CalibrationSamples
from qglow.toolchain.observation import observe
from qglow.toolchain.samples import Data

SCALING = ("awq", "awq-gptq")
"""Roundings that scale the inputs of products with weights in blocks."""
WITHOUT_SAMPLES = ("nearest", "hqq")
"""Roundings that look at weights alone, and are done when a graph is quantized."""


def reconstruct(
    result: QuantizedGraph,
    recipe: Recipe,
    calibration: Data | CalibrationSamples | None,
    options: CompileOptions,
    progress: Progress | None = None,
    state: Path | None = None,
    interruption: Interruption | None = None,
) -> QuantizedGraph:
    """Round the weights of an int8 graph as the recipe says, where that takes calibration samples.

    Rounding to the nearest and by hqq leave the graph as it is: its weights were made so. Weights in blocks
    are rounded by gptq, for adaround too, after those in int8; no state file keeps them. awq and hqq are for
    weights in blocks: others stay at the nearest, and with awq-gptq they are rounded by gptq.
    state: a file that keeps finished layers, so that an interrupted call continues. interruption: where it
    takes place, the layers that are done keep their new weights.

    Raises UsageError if samples are needed and there are none, for a budget or a state file with a rounding
    that takes no samples, and for hqq and awq without weights in blocks, DataError if samples do not fit the
    model or do not fill a batch, InputFileError for a state file of another model or of other choices.
    """
    if recipe.rounding == "hqq" and not result.graph.has_blocks:
        raise _no_blocks(recipe)
    if recipe.rounding in WITHOUT_SAMPLES:
        if state is not None or recipe.rounding_budget is not None:
            raise UsageError(
                "`rounding_budget` and `rounding_state` go with `rounding=gptq` and `rounding=adaround`, "
                f"not with `rounding={recipe.rounding}`",
                field="rounding",
            )
        return result
    begun = time.monotonic()
    if calibration is None:
        raise UsageError(
            f"rounding {recipe.rounding} looks at the calibration samples: give them with "
            f"`calibration_data`, or choose {' or '.join(f'`rounding={one}`' for one in WITHOUT_SAMPLES)}",
            field="rounding",
        )
    runs = CalibrationRuns.of(result.source, recipe, calibration)
    if runs.note:
        result = replace(result, report=result.report.warned(runs.note))

    def tensors(graph: Graph, values: Sequence[Value]) -> Iterator[Mapping[Value, Array]]:
        return observe(graph, values, (_typed(graph, inputs) for inputs in runs), options)

    blocks = len(block_products_of(result))
    if recipe.rounding in SCALING and not blocks:
        raise _no_blocks(recipe)
    if recipe.rounding == "awq":
        return scale_inputs(
            result, tensors, False, advance=start(progress, blocks), interruption=interruption
        )
    advance = start(progress, len(rounded_nodes(result.graph)) + blocks)
    samples, budget = len(runs) * runs.batch, recipe.rounding_budget
    rounded = round_weights(
        result,
        tensors,
        samples,
        advance=advance,
        learn=recipe.rounding == "adaround",
        out_of_time=lambda: budget is not None and time.monotonic() - begun >= budget,
        state=None if state is None else load_rounding(state, _about(result, recipe, runs)),
        interruption=interruption,
    )
    if blocks and recipe.rounding in SCALING and not (interruption and interruption.happened):
        return scale_inputs(rounded, tensors, True, advance=advance, interruption=interruption)
    if blocks and not (interruption and interruption.happened):
        rounded = round_blocks(rounded, tensors, advance=advance, interruption=interruption)
    follow_products(result.graph, rounded.graph)
    return rounded


def _no_blocks(recipe: Recipe) -> UsageError:
    return UsageError(
        f"rounding {recipe.rounding} is for weights in blocks, and there are none: choose `weights`, "
        "or `rounding=gptq`",
        field="rounding",
    )


def _about(result: QuantizedGraph, recipe: Recipe, runs: CalibrationRuns) -> dict[str, str]:
    """Return all that the rounded integers depend on, by name, for the state file."""
    return {
        "version of qglow": __version__,
        "model": fingerprint(result.source),
        "int8 form of it": fingerprint(result.graph),
        "choice of correct_bias": str(recipe.correct_bias),
        "calibration data": f"{runs.dataset.digest().hex} {len(runs) * runs.batch}",
    }


def _typed(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Quantize float inputs where the graph takes integers."""
    found = {}
    for value in graph.inputs:
        array = inputs[value.name]
        quantization = value.type.quantization
        found[value.name] = array if quantization is None else quantize_by(array, quantization)
    return found
