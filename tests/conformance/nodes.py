"""ONNX's own node tests through qglow, in three ways, each with a checked-in list of those that pass.

- constants: shapes, axes and other such parameters become initializers, as exported models have them;
  the graph interpreter runs the rest.
- interpreted: every input of a test is an input of the model, through the public API and the interpreter.
- compiled: the same, through native code.
- hosted: interpreted, with the nodes that qglow does not know in onnxruntime; elsewhere they are errors.

`python -m tests.conformance.nodes` writes the lists anew; a list may only grow.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

import qglow
from qglow.core.errors import QglowError, UndecidedError, UsageError
from qglow.core.types import Array
from qglow.graph.interpreter import interpret
from qglow.importer import import_model

FOLDER = Path(__file__).parent
HEADER = "# onnx "
FLOAT_PARAMETERS = ("roi", "scales", "x_scale", "w_scale", "y_scale", "a_scale", "b_scale")
"""Names of inputs that qglow wants constant although they are float vectors."""

Arrays = Mapping[str, Array]
Runner = Callable[[Path, Arrays], Arrays]


def node_tests() -> list[TestCase]:
    """Load all node tests of the installed onnx, with their data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference data of some casts overflow on purpose
        return [test for test in load_model_tests(kind="node") if test.model is not None]


def run_with_constants(path: Path, arrays: Arrays) -> Arrays:
    """Run a model whose parameters are turned into initializers in the graph interpreter."""
    model = onnx.load(path)
    fed = _fix_parameters(model, arrays)
    path.write_bytes(model.SerializeToString())
    try:
        graph = import_model(path, {name: array.shape for name, array in fed.items()}, native=True).graph
        return interpret(graph, fed)
    except UndecidedError:
        raise  # a parameter that this way leaves to the caller
    except UsageError as error:
        raise AssertionError(f"{model.graph.name}: {error}") from error


def run_interpreted(path: Path, arrays: Arrays) -> Arrays:
    """Run a model as it is in the graph interpreter."""
    return _loaded(path, arrays).interpret(arrays)


def run_compiled(path: Path, arrays: Arrays) -> Arrays:
    """Run a model as it is in native code."""
    return _loaded(path, arrays).compile()(arrays)


def run_hosted(path: Path, arrays: Arrays) -> Arrays:
    """Run a model as it is in the graph interpreter, parts of it in onnxruntime."""
    return _loaded(path, arrays, native=False).interpret(arrays)


def _loaded(path: Path, arrays: Arrays, native: bool = True) -> qglow.Model:
    """The model with the shapes of its inputs; their values come with the call."""
    return qglow.load_model(path, {name: array.shape for name, array in arrays.items()}, native=native)


RUNNERS: dict[str, Runner] = {
    "constants": run_with_constants,
    "interpreted": run_interpreted,
    "compiled": run_compiled,
    "hosted": run_hosted,
}
KNOWN_CRASHES = (AssertionError, KeyError, IndexError, ValueError, TypeError, NotImplementedError)
"""Exceptions that are faults of qglow and not refusals: such a test counts as failed."""


def passing(tests: list[TestCase], way: str) -> set[str]:
    """Names of the tests that pass in one of the ways of `RUNNERS`."""
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        return {test.name for test in tests if all(_results(test, RUNNERS[way], Path(folder)))}


def _results(test: TestCase, run: Runner, folder: Path) -> Iterator[bool]:
    # Releases of onnx type its tests differently, or not at all.
    data_sets: Any = test.data_sets
    for inputs, outputs in data_sets:
        yield _passes(test, run, inputs, outputs, folder)


def _passes(test: TestCase, run: Runner, inputs: list[object], outputs: list[object], folder: Path) -> bool:
    model: Any = test.model
    graph = model.graph
    inputs, outputs = ([_as_array(value) for value in values] for values in (inputs, outputs))
    feeds = {v.name: a for v, a in zip(graph.input, inputs, strict=False)}
    if not all(isinstance(a, np.ndarray | np.generic) for a in [*feeds.values(), *outputs]):
        return False
    path = folder / "node.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        results = run(path, {name: np.asarray(array) for name, array in feeds.items()})
    except QglowError:
        return False
    except KNOWN_CRASHES:
        if run is run_with_constants:
            raise
        return False
    return all(
        _matches(results[value.name], np.asarray(expected), test)
        for value, expected in zip(graph.output, outputs, strict=True)
    )


def _as_array(value: object) -> object:
    """Data of a test as an array, where they are a serialized tensor: those of Cast are."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _fix_parameters(model: onnx.ModelProto, arrays: Arrays) -> dict[str, Array]:
    """Turn shapes, axes, bounds and other such inputs into initializers; returns the others."""
    fed = {}
    for name, array in arrays.items():
        if array.dtype == np.float32 and array.ndim and name not in FLOAT_PARAMETERS:
            fed[name] = array
        else:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return fed


def _matches(actual: Array, expected: Array, test: TestCase) -> bool:
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    return bool(np.allclose(actual, expected, test.rtol, test.atol, equal_nan=True))


def list_path(way: str) -> Path:
    """The checked-in list of a way."""
    return FOLDER / f"passing_{way}.txt"


def read_list(way: str) -> tuple[str, list[str]]:
    """The onnx version that a list was made with, and its names."""
    first, *names = list_path(way).read_text().splitlines()
    return first.removeprefix(HEADER), names


def write_list(way: str, tests: list[TestCase]) -> None:
    """Write a list anew."""
    names = sorted(passing(tests, way))
    list_path(way).write_text("\n".join([HEADER + onnx.__version__, *names]) + "\n")
    print(f"{way}: {len(names)} of {len(tests)} pass, written to {list_path(way)}")


if __name__ == "__main__":
    every = node_tests()
    for name in RUNNERS:
        write_list(name, every)
