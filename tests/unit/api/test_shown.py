"""Results as interpreters, notebooks, JSON, data frames and plots show them."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qglow
from qglow.core.printable import printable
from qglow.report.decoding import DecodingSpeed
from tests.zoo import REPOSITORY

CALIBRATION = REPOSITORY / "calib_data" / "calib.npz"
TEST = REPOSITORY / "calib_data" / "test.npz"
HOSTILE = "<script>alert(1)</script>&\"'$x_1^2$\x1b[31m\u202e"
LONG = "a/very/long/name/" * 60
LINE = 260
"""Characters that a line may have."""
PAGE = 20_000
"""Characters that a piece of a notebook may have."""
VOID = {"br", "hr", "img", "meta", "link", "input"}


def hostile_model() -> onnx.ModelProto:
    """Two layers of 40 channels whose names are markup, formulas, escapes, or endless; the batch is free."""
    rng = np.random.default_rng(5)
    first, second = (rng.normal(size=(40, 40)).astype(np.float32) for _ in range(2))
    nodes = [
        helper.make_node("MatMul", [HOSTILE, "w1"], [f"{HOSTILE}h"], name=f"{HOSTILE}node"),
        helper.make_node("Relu", [f"{HOSTILE}h"], [LONG], name=LONG),
        helper.make_node("MatMul", [LONG, "w2"], ["<b>scores</b>"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        HOSTILE,
        [helper.make_tensor_value_info(HOSTILE, TensorProto.FLOAT, ["N", 40])],
        [helper.make_tensor_value_info("<b>scores</b>", TensorProto.FLOAT, ["N", 40])],
        [numpy_helper.from_array(first, "w1"), numpy_helper.from_array(second, "w2")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Results:
    """Everything that is shown, of the hostile model, each made when it is first asked for."""

    def __init__(self) -> None:
        rng = np.random.default_rng(6)
        self.data = {HOSTILE: rng.normal(size=(24, 40)).astype(np.float32)}
        self.model = qglow.load_model(hostile_model())
        self.profile = self.model.profile(self.data)
        self.quantized = self.model.quantize(self.profile, scheme="cnn")  # with ranges, which are shown

    @cached_property
    def all(self) -> dict[str, Any]:
        model, profile, quantized, data = self.model, self.profile, self.quantized, self.data
        goal = qglow.Goal(min_sqnr_db=200.0)
        return {
            "model": model,
            "profile": profile,
            "quantized": quantized,
            "verdict": quantized.verdict,
            "comparison": qglow.compare(quantized, data),
            "layers": qglow.compare_layers(quantized, data, samples=4),
            "diagnosis": qglow.diagnose(quantized, data, samples=4, profile=profile),
            "bench": qglow.bench(quantized, alternations=2),
            "executable": quantized.compile(),
            "float executable": model.at({HOSTILE: (2, 40)}).compile(),
            "tuning": qglow.tune(model, profile, data, goal, calibration_data=data),
        }


NAMES = (
    *("model", "profile", "quantized", "verdict", "comparison", "layers", "diagnosis", "bench"),
    *("executable", "float executable", "tuning"),
)
WITHOUT_FRAME = {"executable", "float executable"}


@pytest.fixture(scope="module")
def results() -> Results:
    return Results()


class _Strict(HTMLParser):
    """Reads HTML whose elements are all closed, and keeps names of elements, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", NAMES)
def test_line_is_short_and_printable(name: str, results: Results) -> None:
    line = repr(results.all[name])
    assert line.isprintable() and len(line) < LINE, line
    assert line.startswith(type(results.all[name]).__name__ + "(")


@pytest.mark.parametrize("name", NAMES)
def test_notebook_gets_a_small_piece_without_markup_of_names(name: str, results: Results) -> None:
    page = results.all[name]._repr_html_()
    found = _Strict()
    found.feed(page)
    assert not found.open and found.tags <= {
        *("div", "style", "p", "table", "caption", "thead", "tbody", "tr", "th", "td", "pre"),
    }
    assert found.attributes <= {"class", "scope"}, "nothing is loaded or run"
    assert len(page) < PAGE and "\x1b" not in page and "\u202e" not in page
    if name in ("model", "profile", "layers", "diagnosis", "executable"):
        assert "<script>alert(1)</script>&" in found.text


@pytest.mark.parametrize("name", NAMES)
def test_json_has_it_without_loss_of_sense(name: str, results: Results) -> None:
    plain = results.all[name].to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_values_of_json(results: Results) -> None:
    shown = results.all
    assert sum(shown["model"].to_dict()["nodes"].values()) == len(results.model.graph.nodes)
    profile = shown["profile"].to_dict()
    assert profile["samples"] == 24 and profile["model"]["path"] is None
    first = profile["values"][0]
    assert first["value"] == HOSTILE and first["elements"] == 24 * 40
    assert first["min"] == results.data[HOSTILE].min() and first["max"] == results.data[HOSTILE].max()
    assert shown["quantized"].to_dict()["verdict"] == shown["verdict"].to_dict()
    assert shown["executable"].to_dict()["outputs"].keys() == {"<b>scores</b>"}
    assert len(shown["tuning"].to_dict()["trials"]) == len(shown["tuning"].trials)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_FRAME])
def test_frame_has_a_row_for_each_part(name: str, results: Results) -> None:
    pytest.importorskip("pandas")
    shown = results.all[name]
    expected = {
        "model": lambda: len(results.model.graph.nodes),
        "profile": lambda: len(shown.values),
        "quantized": lambda: len(results.quantized.graph.nodes),
        "verdict": lambda: len(shown.outputs),
        "comparison": lambda: sum(len(p.outputs) for p in shown.pairings),
        "layers": lambda: len(shown.layers),
        "diagnosis": lambda: len(shown.nodes),
        "bench": lambda: len(shown.latencies),
        "tuning": lambda: len(shown.trials),
    }[name]()
    table = shown.to_frame()
    assert len(table) == expected > 0


def test_frame_values(results: Results) -> None:
    pytest.importorskip("pandas")
    table = results.quantized.to_frame().set_index("value")
    for node in results.quantized.graph.nodes:
        kind = node.output.type
        row = table.loc[node.output.name]
        assert row["operator"] == node.operator.name and row["shape"] == kind.shape
        if kind.quantization is not None:
            assert row["scale"] == kind.quantization.scale
            assert row["zero_point"] == kind.quantization.zero_point
    comparison = results.all["comparison"]
    first = comparison.to_frame().iloc[0]
    assert first["sqnr_db"] == comparison.pairings[0].outputs["<b>scores</b>"].sqnr_db


@pytest.fixture
def closing() -> Iterator[None]:
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def drawn(axes: Any) -> None:
    """Draw for real: errors of formulas and fonts come only then."""
    axes.figure.canvas.draw()


def test_plots_draw_names_as_they_are(results: Results, closing: None) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    shown = results.all
    for name in ("model", "comparison", "layers", "diagnosis", "bench", "tuning"):
        drawn(shown[name].plot())
    comparison = shown["comparison"]
    bars = [bar.get_width() for bar in comparison.plot().patches]
    levels = [p.outputs["<b>scores</b>"].sqnr_db for p in comparison.pairings]
    most = max(level for level in levels if math.isfinite(level))
    assert bars == [min(level, most) for level in levels]
    operators = [node.operator.name for node in results.model.graph.nodes]
    model = results.model.plot()
    found = dict(zip((t.get_text() for t in model.get_yticklabels()), model.patches, strict=True))
    assert {name: bar.get_width() for name, bar in found.items()} == Counter(operators)
    labels = [text.get_text() for text in shown["layers"].plot().get_yticklabels()]
    assert len(labels) == len(shown["layers"].layers)
    assert any("$x_1^2$" in label or "/very/long/name/" in label for label in labels)
    assert all(len(label) <= 40 and label.isprintable() for label in labels)


def test_plot_of_a_value_has_its_range(results: Results, closing: None) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    [tensor] = [t for t in results.quantized.report.tensors if t.value == HOSTILE]  # type: ignore[union-attr]
    axes = results.quantized.plot(HOSTILE)
    drawn(axes)
    assert f"covered: {tensor.low:.4g} to {tensor.high:.4g}" in [
        text.get_text() for text in axes.get_legend().get_texts()
    ]
    [bars] = results.profile.plot(HOSTILE, bins=7).patches
    assert len(bars.get_data().values) == 7
    assert round(sum(bars.get_data().values)) == 24 * 40
    for shown in (results.profile, results.quantized):
        with pytest.raises(qglow.UsageError, match="'<b>score</b>'"):
            shown.plot("<b>score</b>")


def test_plots_take_names_as_reports_print_them(results: Results, closing: None) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    for shown in (results.profile, results.quantized):
        title = shown.plot(printable(HOSTILE)).get_title()
        assert title == shown.plot(HOSTILE).get_title() and "$x_1^2$" in title
    known = {tensor.value for tensor in results.quantized.report.tensors}  # type: ignore[union-attr]
    for node in results.quantized.graph.nodes:
        if node.output.name in known:
            found = results.quantized.plot(node.name).get_title()
            assert found == results.quantized.plot(node.output.name).get_title()


def test_speed_of_decoding_is_shown(closing: None) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib").use("Agg")
    speeds = {
        name: DecodingSpeed(name, 100.0, speed, 1000) for name, speed in (("qglow", 8.0), ("other", 4.0))
    }
    result = qglow.DecodingResult(speeds, 16, 4, np.ones((2, 3)), np.ones((2, 3)), 2)
    assert repr(result) == "DecodingResult(qglow 8.0 tokens/s, other 4.0 tokens/s; 16 read, 4 added)"
    assert "16 tokens read, 4 added" in result._repr_html_()
    assert json.loads(json.dumps(result.to_dict()))["speeds"]["other"]["decode"] == 4.0
    assert list(result.to_frame()["decode"]) == [8.0, 4.0]
    drawn(result.plot())


def test_report_of_a_quantization_is_a_line(results: Results) -> None:
    line = repr(results.quantized.report)
    assert line.startswith("QuantizationReport(") and "in int8" in line and len(line) < LINE


def test_plots_go_where_they_are_asked_to(results: Results, closing: None) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    _, axes = pyplot.subplots()
    for name in ("layers", "diagnosis", "bench", "tuning"):
        assert results.all[name].plot(axes=axes) is axes
    assert results.profile.plot(HOSTILE, axes) is axes


def test_missing_libraries_are_named(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in set(NAMES) - WITHOUT_FRAME:
        with pytest.raises(
            qglow.UsageError, match=r'^pandas is not installed: pip install "qglow\[frames\]"$'
        ):
            results.all[name].to_frame()
    for name in ("layers", "diagnosis", "bench", "tuning"):
        with pytest.raises(
            qglow.UsageError, match=r'^matplotlib is not installed: pip install "qglow\[plots\]"$'
        ):
            results.all[name].plot()


def test_what_has_no_shapes_yet_says_so(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "free",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "T"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "T"])],
    )
    model = qglow.load_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )
    executable = model.compile()
    for shown in (model, executable):
        assert repr(shown).isprintable() and len(repr(shown)) < LINE
        found = _Strict()
        found.feed(shown._repr_html_())
        assert "'x'" in found.text
    executable({"x": np.ones((2, 3), np.float32)})
    assert repr(executable).isprintable()
