"""A program that was compiled before is loaded, and compiled anew where it was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qglow.toolchain import compilation, compile_graph, lower_graph
from qglow.toolchain.artefacts import obtain_executable
from qglow.toolchain.compilation import compile_known
from tests.unit.profiling.networks import residual_network, samples


def test_a_program_of_the_cache_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path))
    graph, inputs = residual_network(), {"x": samples(1)[0].inputs["x"][None]}
    expected = compile_graph(graph)(inputs)
    new = compile_known(graph)(inputs)
    obtain_executable(lower_graph(graph))
    monkeypatch.setattr(compilation, "compile_lowered", lambda *_: pytest.fail("compiled again"))
    kept = compile_known(graph)(inputs)
    assert expected.keys() == new.keys() == kept.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(new[name], array)
        np.testing.assert_array_equal(kept[name], array)
