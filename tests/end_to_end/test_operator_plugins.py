"""Operators that another package brings: from the ONNX file to the running program and back."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, load_from_string, numpy_helper

import qglow
from qglow.core.errors import UnsupportedError, UsageError
from qglow.exporter import operators as exporter
from qglow.exporter.plain import export_float
from qglow.graph.interpreter import Interpreter
from qglow.graph.operator import OPERATORS
from qglow.graph.plugins import GROUP, load_operator_plugins
from qglow.graph.text import constant_data, parse_graph, print_graph
from qglow.importer import import_model
from qglow.importer import rules as importer
from qglow.lowering import decompose
from qglow.report.operator_matrix import operator_matrix
from tests.operator_plugin import DOMAIN

TABLES = (OPERATORS, exporter.EXPORTS, decompose.DECOMPOSITIONS)
PLUGIN = EntryPoint("example", "tests.operator_plugin:declare", GROUP)
BROKEN = EntryPoint("acme", "tests.operator_plugin:broken", GROUP)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """The installed plugins, whose operators are known to this test alone."""
    found: list[EntryPoint] = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == GROUP else [])
    before = [dict(table) for table in TABLES]
    rules = {domain: dict(table) for domain, table in importer.DOMAINS.items()}
    load_operator_plugins.cache_clear()
    yield found
    load_operator_plugins.cache_clear()
    for table, content in zip(TABLES, before, strict=True):
        table.clear()
        table.update(content)  # type: ignore[arg-type]
    for domain in list(importer.DOMAINS):
        if domain in rules:
            importer.DOMAINS[domain].clear()
            importer.DOMAINS[domain].update(rules[domain])
        else:
            del importer.DOMAINS[domain]


def model(folder: Path) -> Path:
    """A convolution, its Softsign, and a Gate around another convolution."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.normal(size=(4, c, 3, 3)).astype(np.float32) for i, c in ((0, 3), (1, 4))}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Softsign", ["a"], ["b"]),
            helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Gate", ["c", "b"], ["y"], domain=DOMAIN),
        ],
        "plugin",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(data, name) for name, data in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    path = folder / "plugin.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    return path


def samples(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 3, 8, 8)).astype(np.float32)


def test_a_model_is_refused_without_the_plugin(installed: list[EntryPoint], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"(?s)org\.example\.Gate"):
        import_model(model(tmp_path))


def test_the_plugin_is_loaded_when_an_operator_is_unknown(
    installed: list[EntryPoint], tmp_path: Path
) -> None:
    installed.append(PLUGIN)
    graph = import_model(model(tmp_path)).graph
    assert [node.operator.name for node in graph.nodes] == ["Conv", "Softsign", "Conv", "Gate"]
    text, constants = print_graph(graph), constant_data(graph)
    assert print_graph(parse_graph(text, constants)) == text
    facets = {one.name: one for one in operator_matrix()}
    for name in ("Softsign", "Gate"):
        assert facets[name].lowering == "decomposed" and not facets[name].missing


def test_text_alone_loads_the_plugin(installed: list[EntryPoint]) -> None:
    installed.append(PLUGIN)
    graph = parse_graph('graph g (%x: float<2 x 3>) -> (%y) {\n  %y: float<2 x 3> = Softsign @"s" (%x)\n}\n')
    (y,) = Interpreter(graph).run({"x": np.full((2, 3), -3, np.float32)}).values()
    np.testing.assert_array_equal(y, np.full((2, 3), -0.75, np.float32))


def test_float_and_int8_programs_compute_what_the_operators_mean(
    installed: list[EntryPoint], tmp_path: Path
) -> None:
    installed.append(PLUGIN)
    loaded = qglow.load_model(model(tmp_path))
    x = samples(1)
    expected = loaded.interpret({"x": x})["y"]
    np.testing.assert_allclose(loaded.compile()({"x": x})["y"], expected, rtol=0, atol=1e-5)
    quantized = loaded.quantize(loaded.profile({"x": samples(16)}), repair=False)
    kinds = {node.operator.name: node.output.type for node in quantized.graph.nodes if node.outputs}
    assert kinds["Softsign"].is_quantized and kinds["Gate"].is_float
    wanted = quantized.interpret({"x": x})["y"]
    np.testing.assert_array_equal(quantized.compile()({"x": x})["y"], wanted)
    assert np.mean(np.square(wanted - expected)) < 0.003 * np.mean(np.square(expected))


def test_the_exported_model_names_the_domain(installed: list[EntryPoint], tmp_path: Path) -> None:
    installed.append(PLUGIN)
    written = load_from_string(export_float(import_model(model(tmp_path)).graph).SerializeToString())
    assert [(node.domain, node.op_type) for node in written.graph.node][-1] == (DOMAIN, "Gate")
    assert (DOMAIN, 1) in {(entry.domain, entry.version) for entry in written.opset_import}


def test_a_broken_plugin_is_named(installed: list[EntryPoint], tmp_path: Path) -> None:
    installed.append(BROKEN)
    with pytest.raises(UsageError, match="plugin 'acme' .* cannot be loaded: no module named 'acme'; repair"):
        import_model(model(tmp_path))


def test_known_operators_need_no_plugin(installed: list[EntryPoint]) -> None:
    installed.append(BROKEN)
    parse_graph('graph g (%x: float<3>) -> (%y) {\n  %y: float<3> = Relu @"r" (%x)\n}\n')


def test_nothing_is_registered_twice(installed: list[EntryPoint]) -> None:
    installed.extend([PLUGIN, PLUGIN])
    with pytest.raises(UsageError, match="operator Softsign is declared twice"):
        load_operator_plugins()
