"""Inputs to compare on: arrays of just the right shapes, samples of data, or random numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qglow.bisection.texts import read_arrays
from qglow.core.batch import as_taken, batch_of
from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array, TensorType
from qglow.graph.graph import Graph
from qglow.instructions.program import Program
from qglow.profiling.samples import batches
from qglow.recipe.schema import Recipe
from qglow.toolchain.samples import open_samples


def input_types(ir: Graph | Program) -> dict[str, TensorType]:
    """Names and types of the inputs of a graph or a program."""
    if isinstance(ir, Graph):
        return {value.name: value.type for value in ir.inputs}
    return {buffer.name: buffer.type for buffer in ir.inputs()}


def read_inputs(
    ir: Graph | Program, data: str | None, recipe: Recipe, select: str | None, runs: int = 1
) -> list[dict[str, Array]]:
    """Inputs for so many runs: random ones without data, else the first samples of the data.

    An .npz file whose arrays have the names and the shapes of the inputs, batch included, is one run.
    Raises DataError for data that does not fit and where there are too few samples.
    """
    types = input_types(ir)
    if data is None:
        if select is not None:
            raise UsageError("it chooses from `data`", field="select")
        return [_random(types, seed) for seed in range(runs)]
    if data.endswith(".npz") and select is None:
        found = read_arrays(Path(data))
        if all(name in found and _fits(found[name], kind) for name, kind in types.items()):
            return [{name: found[name] for name in types}]
    size = batch_of({name: kind.shape for name, kind in types.items()})
    opened = open_samples(data, types, recipe=recipe, select=select)
    stacked = [batch.inputs for batch, _ in zip(batches(opened, size), range(runs), strict=False)]
    made = [{name: as_taken(a, types[name].shape) for name, a in inputs.items()} for inputs in stacked]
    whole = [inputs for inputs in made if all(_fits(inputs[name], kind) for name, kind in types.items())]
    if not whole:
        raise DataError(f"{data} has fewer samples than one batch of {size}")
    return whole


def _fits(array: Array, kind: TensorType) -> bool:
    return array.shape == kind.shape and array.dtype == kind.element.dtype


def _random(types: dict[str, TensorType], seed: int) -> dict[str, Array]:
    """Normal floats, zeros where integers are indices, all of int8."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, kind in types.items():
        if kind.is_float:
            made[name] = random.standard_normal(kind.shape).astype(kind.element.dtype)
        elif kind.is_quantized:
            bounds = np.iinfo(kind.element.dtype)
            made[name] = random.integers(bounds.min, bounds.max + 1, kind.shape).astype(kind.element.dtype)
        else:
            made[name] = np.zeros(kind.shape, kind.element.dtype)
    return made
