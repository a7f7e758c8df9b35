"""What `qglow run` prints of an output of one sample."""

from __future__ import annotations

import numpy as np

from qglow.cli.run import _answer


def test_an_output_without_axes_has_an_answer() -> None:
    assert "2.5" in _answer("y", np.array(2.5, np.float32), 1)
