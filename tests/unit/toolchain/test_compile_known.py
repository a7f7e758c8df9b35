"""A program that was compiled before is loaded, and compiled anew where it was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import qglow
from qglow.toolchain import compilation, compile_graph, lower_graph
from qglow.toolchain.artefacts import obtain_executable
from qglow.toolchain.compilation import compile_known
from tests.runtimes import NATIVE_ISAS
from tests.unit.importer.tiny import save, tiny_model
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


@pytest.mark.parametrize("isa", NATIVE_ISAS)
def test_cached_programs_read_their_own_constants(
    isa: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of zero may be stored where a bias of zero is, which the text of a program does not show."""
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))
    x = np.array([[2.0], [3.0]], np.float32)
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    for a, b in ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (1.0, 1.0)):
        constants = {"a": np.full((1, 1), a, np.float32), "b": np.full((1, 1), b, np.float32)}
        path = save(tiny_model(nodes, {"x": [2, 1]}, ["y"], constants), tmp_path)
        assert np.array_equal(qglow.load_model(path).compile(isa=isa, threads=1)({"x": x})["y"], x * a * b)
