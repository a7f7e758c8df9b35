"""What `qglow run` prints of an output of one sample."""

from __future__ import annotations

import numpy as np

from qglow.cli.run import _answer, _written


def test_an_output_without_axes_has_an_answer() -> None:
    assert "2.5" in _answer("y", np.array(2.5, np.float32), 1)


def test_outputs_of_different_shapes_are_written_one_by_one() -> None:
    rows = [("a.png", np.zeros((2, 4))), ("b.png", np.ones((1, 4)))]
    scores = [(key, np.full(3, number)) for number, (key, _) in enumerate(rows)]
    written = dict(_written({"boxes": rows, "scores": scores}))
    assert {name: array.shape for name, array in written.items()} == {
        "boxes/a.png": (2, 4),
        "boxes/b.png": (1, 4),
        "scores": (2, 3),
    }
    same = [("x", np.zeros(1)), ("x", np.zeros(2))]
    assert list(dict(_written({"y": same}))) == ["y/0", "y/1"]
