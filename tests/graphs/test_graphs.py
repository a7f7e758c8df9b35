"""Random correct models: the rules hold, every operator has its turn, and a broken rule is noticed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import hypothesis
import numpy as np
import pytest

import qglow
from qglow.importer.rules import supported_operators
from tests.graphs.__main__ import main, read, save
from tests.graphs.builder import MAKERS, NEWEST_OPSET, Builder
from tests.graphs.campaign_log import CampaignLog
from tests.graphs.checker import Batch, check
from tests.graphs.drawing import OLDEST_OPSET, Case, cases, finished, grow

NOT_GENERATED = {
    **dict.fromkeys(
        ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range"),
        "reads constants alone, so that nothing of a graph flows through it",
    ),
    **dict.fromkeys(("DFT", "STFT"), "takes signals of a layout that no other operator makes"),
    **dict.fromkeys(
        ("AffineGrid", "Attention", "Col2Im", "DeformConv", "Det", "GridSample", "RoiAlign", "Upsample"),
        "takes several inputs whose shapes depend on one another",
    ),
    **dict.fromkeys(
        ("OptionalGetElement", "OptionalHasElement"),
        "takes optional values, which no node makes",
    ),
    **dict.fromkeys(("Compress", "NonZero", "Unique"), "has a shape that depends on values"),
    **dict.fromkeys(
        (
            "ConvInteger",
            "DequantizeLinear",
            "DynamicQuantizeLinear",
            "MatMulInteger",
            "QLinearConv",
            "QLinearMatMul",
            "QuantizeLinear",
        ),
        "makes the model a quantized one, which takes no profile",
    ),
    "MaxUnpool": "takes places of a MaxPool, which are computed",
    "BitCast": "reads the bits of its input, which no other operator gives a meaning",
    "BitShift": "takes unsigned integers",
    "CumProd": "onnxruntime does not have it",
    "TensorScatter": "onnxruntime does not have it",
    "Constant": "stands for constants of every generated model",
}
"""Operators that are imported and not drawn, and why."""


@hypothesis.settings(max_examples=200, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(cases())
def test_correct_models(case: Case) -> None:
    check(case)


def test_every_operator_is_generated_or_has_a_reason() -> None:
    assert sorted({*MAKERS, *NOT_GENERATED}) == supported_operators()
    assert not MAKERS.keys() & NOT_GENERATED.keys()


class RandomBuilder(Builder):
    """A builder that draws from its own random numbers."""

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_every_generated_operator_fits_some_graph(name: str) -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        opset = int(rng.integers(OLDEST_OPSET, NEWEST_OPSET, endpoint=True))
        builder = RandomBuilder(lambda _: 0, opset, rng, False)
        grow(builder, name)
        if any(node.op_type == name for node in builder.nodes):
            return
    pytest.fail(f"{name} is never drawn")


def relu_case() -> Case:
    """A model of one Relu, and its samples."""
    builder = Builder(lambda _: 0, 13, np.random.default_rng(0), False)
    value = builder.input(builder.floats([1, 4]))
    builder.add("Relu", [value.name], exact=True)
    return finished(builder)


def test_a_saved_case_is_read_back(tmp_path: Path) -> None:
    case = relu_case()
    save(case, tmp_path)
    again = read(tmp_path)
    assert (again.model, again.exact) == (case.model, case.exact) and check(again) == "exported"
    for one, other in zip(again.samples, case.samples, strict=True):
        assert one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def test_a_recurrent_layer_of_nan_is_nan() -> None:
    """onnxruntime gives numbers there."""
    builder = Builder(lambda _: 0, 14, np.random.default_rng(0), False)
    value = builder.input(np.full((1, 1, 1), 1.5, np.float32))
    angle = builder.add("Acos", [value.name])[0]
    weights = [builder.constant(np.ones((1, 3, 1), np.float32)) for _ in range(2)]
    builder.add("GRU", [angle.name, *weights], hidden_size=1)
    assert check(finished(builder)) in ("float", "int8", "exported")


def test_an_edge_beside_nan_is_a_number() -> None:
    """As in the reference of ONNX; onnxruntime multiplies the inner neighbour by 0 there."""
    builder = Builder(lambda _: 0, 19, np.random.default_rng(0), False)
    value = builder.input(np.array([0.5, 1.5], np.float32).reshape(1, 1, 1, 2))
    angle = builder.add("Acos", [value.name])[0]
    scales = builder.constant(np.array([1, 1, 1, 2], np.float32))
    builder.add("Resize", [angle.name, "", scales], mode="linear")
    assert check(finished(builder)) in ("float", "int8", "exported")


def test_a_product_over_the_batch_is_no_result_of_one_sample() -> None:
    """Though what is divided by it and by the other sample is, but for rounding."""
    builder = Builder(lambda _: 0, 11, np.random.default_rng(0), True)
    value = builder.input(np.array([0.7228996], np.float32))
    whole = builder.add("ReduceProd", [value.name], axes=[0], keepdims=0)[0]
    builder.add("Div", [builder.add("Div", [whole.name, value.name])[0].name, whole.name])
    case = finished(builder)
    assert not Batch.of(case.model, case.samples[:2]).outputs
    assert check(case) in ("float", "int8", "exported")


def test_what_is_equal_for_both_samples_does_not_tell_that_it_is_theirs() -> None:
    """Normalized over the batch, x differs from that of one sample; x / x does not, but for int8."""
    builder = Builder(lambda _: 0, 13, np.random.default_rng(0), True)
    value = builder.input(builder.floats([1, 4, 2, 2]))
    mixed = builder.add("MeanVarianceNormalization", [value.name])[0]
    builder.add("Div", [mixed.name, mixed.name])
    assert check(finished(builder)) in ("float", "int8", "exported")


def test_a_campaign_goes_on_where_it_was_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--log", str(tmp_path / "log"), "--save", str(tmp_path / "failures"), "--cases"]
    assert main([*words, "2"]) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 1 and "2 cases" in capsys.readouterr().out
    assert main([*words, "25"]) == 0  # one block is all of it, and is there
    assert (tmp_path / "log").read_text().splitlines() == lines


def test_a_failure_stays_in_the_log(tmp_path: Path) -> None:
    log = CampaignLog.opened(3, tmp_path / "log")
    log.add(0, Counter(int8=20), None)
    log.add(4, Counter(float=3), "AssertionError: off by 1")
    CampaignLog.opened(5, tmp_path / "log").add(1, Counter(int8=9), None)
    again = CampaignLog.opened(3, tmp_path / "log")
    assert (again.done, again.counts.total()) == ({0, 4}, 23)
    assert again.failures == {4: "AssertionError: off by 1"}


def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = qglow.Model.interpret
    monkeypatch.setattr(
        qglow.Model, "interpret", lambda self, inputs: {n: -a for n, a in right(self, inputs).items()}
    )
    with pytest.raises(AssertionError, match="the interpreter"):
        check(relu_case())
