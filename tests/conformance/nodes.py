"""ONNX's own node tests through importer and graph interpreter.

`python -m tests.conformance.nodes` writes anew the list of those that pass.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from qglow.core.errors import QglowError, UsageError
from qglow.core.types import Array
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model

LIST = Path(__file__).parent / "passing_nodes.txt"
HEADER = "# onnx "
FLOAT_PARAMETERS = ("roi", "scales", "x_scale", "w_scale", "y_scale", "a_scale", "b_scale")
"""Names of inputs that qglow wants constant although they are float vectors."""


def node_tests() -> list[TestCase]:
    """All node tests of the installed onnx, with their data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reference data of some casts overflow on purpose
        return [test for test in load_model_tests(kind="node") if test.model is not None]


def passing(tests: list[TestCase]) -> set[str]:
    """Names of the tests that pass."""
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        return {test.name for test in tests if all(_results(test, Path(folder)))}


def _results(test: TestCase, folder: Path) -> Iterator[bool]:
    for inputs, outputs in test.data_sets:
        yield _passes(test, inputs, outputs, folder)


def _passes(test: TestCase, inputs: list[object], outputs: list[object], folder: Path) -> bool:
    model = onnx.ModelProto()
    model.CopyFrom(test.model)
    feeds = {v.name: a for v, a in zip(model.graph.input, inputs, strict=False)}
    if not all(isinstance(a, np.ndarray | np.generic) for a in [*feeds.values(), *outputs]):
        return False
    arrays = {name: np.asarray(a) for name, a in feeds.items()}
    _fix_parameters(model, arrays)
    path = folder / "node.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        graph = import_model(path, {name: array.shape for name, array in arrays.items()}).graph
        results = Interpreter(graph).run(arrays)
    except QglowError as error:
        assert not isinstance(error, UsageError), f"{test.name}: {error}"
        return False
    return all(
        _matches(results[value.name], np.asarray(expected), test)
        for value, expected in zip(model.graph.output, outputs, strict=True)
    )


def _fix_parameters(model: onnx.ModelProto, arrays: dict[str, Array]) -> None:
    """Turn shapes, axes, bounds and other such inputs into initializers: qglow wants them constant."""
    for name, array in list(arrays.items()):
        if array.dtype == np.float32 and array.ndim and name not in FLOAT_PARAMETERS:
            continue
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        del arrays[name]


def _matches(actual: Array, expected: Array, test: TestCase) -> bool:
    if actual.dtype == np.int8 and expected.dtype == np.uint8:
        # uint8 of a model is int8 in the graph, 128 less.
        actual = actual.view(np.uint8) ^ np.uint8(128)
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    return bool(np.allclose(actual, expected, test.rtol, test.atol, equal_nan=True))


def read_list() -> tuple[str, list[str]]:
    """The onnx version that the list was made with, and its names."""
    first, *names = LIST.read_text().splitlines()
    return first.removeprefix(HEADER), names


def write_list() -> None:
    """Write the list anew."""
    names = sorted(passing(node_tests()))
    LIST.write_text("\n".join([HEADER + onnx.__version__, *names]) + "\n")
    print(f"{len(names)} names written to {LIST}")


if __name__ == "__main__":
    write_list()
