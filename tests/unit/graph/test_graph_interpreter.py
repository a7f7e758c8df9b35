"""Running a graph in numpy."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.graph.graph import Value
from qglow.graph.interpreter import Interpreter
from qglow.graph.text import parse_graph

TEXT = """
graph g (%x: float<2>, %z: float<2>) -> (%y, %c, %x) {
  %c: float<2> = constant {1.0, 2.0}
  %a: float<2> = Add @a (%x, %c)
  %b: float<2> = Mul @b (%a, %z)
  QuantizationProfile @probe (%b)
  %y: float<2> = Relu @y (%b)
}
"""
INPUTS = {"x": np.array([1, -4], np.float32), "z": np.array([3, 5], np.float32)}


def test_outputs_come_by_name_constants_and_inputs_among_them() -> None:
    found = Interpreter(parse_graph(TEXT)).run(INPUTS)
    assert {name: array.tolist() for name, array in found.items()} == {"y": [6, 0], "c": [1, 2], "x": [1, -4]}


def test_taps_see_every_computed_value_in_order() -> None:
    seen: list[tuple[str, list[float]]] = []
    Interpreter(parse_graph(TEXT)).run(
        INPUTS, taps=lambda value, array: seen.append((value.name, array.tolist()))
    )
    assert seen == [("x", [1, -4]), ("z", [3, 5]), ("a", [2, -2]), ("b", [6, -10]), ("y", [6, 0])]


def test_values_are_freed_after_their_last_use() -> None:
    references: dict[str, weakref.ref[Array]] = {}
    alive: dict[str, list[str]] = {}

    def tap(value: Value, array: Array) -> None:
        alive[value.name] = [name for name, reference in references.items() if reference() is not None]
        if value.producer is not None:
            references[value.name] = weakref.ref(array)

    Interpreter(parse_graph(TEXT)).run(INPUTS, taps=tap)
    assert alive == {"x": [], "z": [], "a": [], "b": ["a"], "y": ["b"]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": INPUTS["x"]}, r"input 'z' \(float<2>\) is missing"),
        ({**INPUTS, "w": INPUTS["x"]}, "no input is called 'w'; there are x, z"),
        ({**INPUTS, "z": np.zeros(3, np.float32)}, r"input 'z' is float32\[3\], declared is float<2>"),
        ({**INPUTS, "z": np.zeros(2)}, r"input 'z' is float64\[2\]"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: dict[str, Array], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Interpreter(parse_graph(TEXT)).run(inputs)
