"""The table of products beside onnxruntime and OpenVINO."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

from scripts.benchmarks.frame import run
from scripts.benchmarks.measurements import products
from scripts.benchmarks.rivals.products import dynamic_product, nbits_product


def test_a_ratio_is_to_the_fastest_of_the_others() -> None:
    found = {"qglow": 2.0, "onnxruntime": 5.0, "OpenVINO": 3.0}
    assert products.ratio(found) == 1.5
    cells = products.row(products.Form(4, 32, True), 16, found)
    assert cells == ("`int4:32`, dynamic", "16", "2.000", "5.000", "3.000", "1.50")


def test_forms_choose_weights_and_rows() -> None:
    assert products.Form(8, None, True).choice == {"dynamic": True}
    assert products.Form(4, 128, False).choice == {"weights": "int4:128"}


@pytest.mark.parametrize("bits", [4, 8])
def test_a_rival_multiplies_codes_less_zero_points(bits: int) -> None:
    model = nbits_product(2, 64, bits, 32)
    data = {tensor.name: numpy_helper.to_array(tensor).reshape(-1) for tensor in model.graph.initializer}
    x = np.zeros((2, 64), np.float32)
    x[:, 0] = 1.0
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    first = session.run(None, {"x": x})[0][0, 0]
    mask = (1 << bits) - 1
    wanted = (int(data["w"][0]) & mask) - (int(data["zeros"][0]) & mask)
    assert first == pytest.approx(wanted * data["scales"][0])


def test_a_rival_rounds_rows() -> None:
    model = dynamic_product(3, 32).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.ones((3, 32), np.float32)})[0].shape == (3, 32)


def test_every_form_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openvino")
    assert run(products.BENCHMARK, ["--size", "256", "--rows", "1", "--alternations", "2"]) == 0
    printed = capsys.readouterr().out
    assert len([x for x in printed.splitlines() if x.startswith(("| int8", "| `int"))]) == len(products.FORMS)
    assert "Geometric mean of the last column" in printed
