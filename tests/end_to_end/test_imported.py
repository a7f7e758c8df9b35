"""Quantized models of others, and our own export read again: the same integers, node by node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from qglow.api import compare, compare_layers, load_model, load_quantized
from qglow.core.types import Array, ElementType
from qglow.exporter import export_qdq
from qglow.exporter.qdq import Activations
from qglow.graph.graph import Graph
from qglow.graph.interpreter import Interpreter
from qglow.importer import import_model
from qglow.passes import canonicalize
from qglow.quantization.imported import quantize_imported
from qglow.recipe.rules import Match, Rule
from qglow.report.comparison_result import FLOAT, INT8, QDQ
from qglow.report.oracle import OnnxruntimeModel
from qglow.toolchain import compile_graph
from tests.end_to_end.conftest import CALIBRATION, MODEL, TEST_DATA, Run
from tests.end_to_end.zoo_flow import BASIC, MODELS, THOROUGH, inputs, quantized, recipe

U8, S8 = QuantType.QUInt8, QuantType.QInt8
FORMS = {
    "QDQ uint8 per channel": (QuantFormat.QDQ, U8, S8, True),
    "QDQ uint8 per tensor": (QuantFormat.QDQ, U8, U8, False),
    "QDQ int8 per channel": (QuantFormat.QDQ, S8, S8, True),
    "QOperator uint8 per channel": (QuantFormat.QOperator, U8, S8, True),
    "QOperator uint8 per tensor": (QuantFormat.QOperator, U8, U8, False),
    "QOperator int8 per channel": (QuantFormat.QOperator, S8, S8, True),
}
WIDE_FORMS = {
    "QDQ int16 per channel": (QuantFormat.QDQ, QuantType.QInt16, S8, True),
    "QDQ uint16 per tensor": (QuantFormat.QDQ, QuantType.QUInt16, S8, False),
}


MORE = ("mlperftiny_vww96", "mobilenet_v1_0.25_224", "fastestdet", "deeplabv3_mnv2_voc")
LONG = ("resnet50v2s3_tin202", "deeplabv3_mnv2_voc", "mobilenet_v1_0.25_224")


def _marks(name: str, kind: str) -> list[pytest.MarkDecorator]:
    again = name in LONG or (kind == "int8" and name not in BASIC)
    marks = [] if name == "digits" else [pytest.mark.slow]
    return [*marks, pytest.mark.sweep] if again else marks


ROUND_TRIPS = [
    pytest.param(name, kind, id=f"{name}-{kind}", marks=_marks(name, kind))
    for names, kinds in ((THOROUGH, ("uint8", "int8")), (MORE, ("uint8",)))
    for name in names
    for kind in kinds
]
WIDE = {
    "all": (Rule(Match(name=".*"), dtype="int16"),),
    "some": (Rule(Match(operator="Conv"), dtype="int16"), Rule(Match(name="block2.*"), dtype="int8")),
}


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """The example's calibration data, an image a time."""

    def __init__(self) -> None:
        images = np.load(CALIBRATION)["input"][:64]
        self._left: Iterator[Array] = iter(images)

    def get_next(self) -> dict[str, Array] | None:
        image = next(self._left, None)
        return None if image is None else {"input": image[None]}


def quantize_with_onnxruntime(
    form: str, folder: Path, symmetric: bool = True, contributed: bool = False
) -> Path:
    """What onnxruntime's own tool makes of the example. contributed: QuantizeLinear is of its own domain."""
    layout, activations, weights, per_channel = (FORMS | WIDE_FORMS)[form]
    path, source = folder / "theirs.onnx", folder / "source.onnx"
    # The tool writes beside the model that it reads, for a moment.
    shutil.copyfile(MODEL, source)
    quantize_static(
        source,
        path,
        Samples(),
        quant_format=layout,
        activation_type=activations,
        weight_type=weights,
        per_channel=per_channel,
        extra_options={
            "WeightSymmetric": symmetric,
            "ActivationSymmetric": form in WIDE_FORMS,
            "UseQDQContribOps": contributed,
        },
    )
    return path


def onnxruntime_logits(path: Path, images: Array) -> Array:
    session = OnnxruntimeModel(path, shapes={"input": (1, *images.shape[1:])}, exact_sums=True)
    return np.concatenate([session({"input": image[None]})["logits"] for image in images])


@pytest.fixture(scope="module")
def images() -> Array:
    found: Array = np.load(TEST_DATA)["input"][:64]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_what_onnxruntime_quantized_gives_its_results(form: str, tmp_path: Path, images: Array) -> None:
    path = quantize_with_onnxruntime(form, tmp_path)
    model = load_model(path)
    assert model.is_quantized
    made = model.quantize()
    report = made.report
    assert report is not None and report.given
    assert len(report.float_nodes) <= 2, [node.reason for node in report.float_nodes]
    program = made.compile()
    found = np.concatenate([program({"input": image[None]})["logits"] for image in images])
    expected = onnxruntime_logits(path, images)
    assert np.mean(found.argmax(1) == expected.argmax(1)) == 1.0
    # A tie in an average that is rounded the other way may reach a few of the last results.
    assert np.mean(found == expected) > 0.95


@pytest.mark.parametrize(
    ("form", "domain"), [*((form, "") for form in WIDE_FORMS), ("QDQ uint16 per tensor", "com.microsoft")]
)
def test_int16_that_onnxruntime_quantized_gives_its_results(
    form: str, domain: str, tmp_path: Path, images: Array
) -> None:
    path = quantize_with_onnxruntime(form, tmp_path, contributed=bool(domain))
    assert {n.domain for n in onnx.load(path).graph.node if n.op_type == "QuantizeLinear"} == {domain}
    made = load_model(path).quantize()
    report = made.report
    assert report is not None and not report.float_nodes, [node.reason for node in report.float_nodes]
    values = [v for v in made.graph.values() if v.type.is_quantized and not v.is_constant]
    assert values and all(value.type.element is ElementType.INT16 for value in values)
    program = made.compile()
    found = np.concatenate([program({"input": image[None]})["logits"] for image in images[:16]])
    expected = onnxruntime_logits(path, images[:16])
    # onnxruntime computes in float between its 16 bit integers, which here are sums without rounding.
    assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()


def test_every_node_gives_the_integers_that_onnxruntime_gives(tmp_path: Path, images: Array) -> None:
    made = load_model(quantize_with_onnxruntime("QDQ uint8 per channel", tmp_path)).quantize()
    layers = compare_layers(made, {"input": images[:16]})
    assert layers.matches(optimized=True).different == 0
    assert layers.matches(optimized=False).max_step <= 1


def test_asymmetric_weights_are_rounded_again_and_the_report_says_so(tmp_path: Path, images: Array) -> None:
    path = quantize_with_onnxruntime("QDQ uint8 per tensor", tmp_path, symmetric=False)
    made = load_model(path).quantize()
    assert made.report is not None
    rounded = [e for e in made.report.log if e.applied and not e.exact and "zero points" in e.what]
    assert rounded
    compiled = made.compile()
    found = np.concatenate([compiled({"input": image[None]})["logits"] for image in images])
    expected = onnxruntime_logits(path, images)
    assert np.mean(found.argmax(1) == expected.argmax(1)) > 0.95


@pytest.mark.parametrize(("name", "activations"), ROUND_TRIPS)
def test_an_export_read_again_is_the_same_program(
    name: str, activations: Activations, tmp_path: Path
) -> None:
    batch = MODELS[name].batches[0]
    _check_round_trip(name, quantized(name, batch).graph, activations, tmp_path)


@pytest.mark.parametrize("kind", WIDE)
def test_an_export_with_int16_read_again_is_the_same_program(kind: str, tmp_path: Path) -> None:
    options = replace(recipe("digits"), rules=WIDE[kind])
    ours = quantized("digits", 1, options).graph
    elements = {v.type.element for v in ours.values() if v.type.is_quantized and not v.is_constant}
    assert elements == {ElementType.INT16} | ({ElementType.INT8} if kind == "some" else set())
    _check_round_trip("digits", ours, "uint8", tmp_path)


def _check_round_trip(name: str, ours: Graph, activations: Activations, folder: Path) -> None:
    path, batch = folder / "ours.onnx", MODELS[name].batches[0]
    export_qdq(ours, path, activations)
    again = quantize_imported(canonicalize(import_model(path).graph))
    assert _operators(again.graph) == _operators(ours)
    assert _integers(again.graph) == _integers(ours)
    # A rescale is dequantize and quantize in the exported model; nothing else was rounded on the way.
    approximate = [e.what for e in again.report.log if e.applied and not e.exact]
    assert len(approximate) == _operators(ours).count("Rescale")
    feeds = inputs(name, batch)
    expected, found = (compile_graph(graph)(feeds) for graph in (ours, again.graph))
    for output, array in expected.items():
        np.testing.assert_array_equal(found[output], array)


def _operators(graph: Graph) -> list[str]:
    return sorted(node.operator.name for node in graph.nodes)


def _integers(graph: Graph) -> list[str]:
    """Shapes and parameters of all integers; one scale is the same for a tensor as for its one channel."""
    kinds = ((v.type.shape, v.type.quantization) for v in graph.values() if v.type.quantization is not None)
    return sorted(str((shape, k.element.value, k.scales, k.zero_points)) for shape, k in kinds)


def test_commands_take_a_quantized_model_as_it_is(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, data = quantize_with_onnxruntime("QDQ uint8 per channel", tmp_path), ("--data", TEST_DATA)
    assert run("quantize", model, "-o", "made") == 0
    assert "the model's own, kept" in capsys.readouterr().out
    made = load_quantized("made")
    assert made.report is not None and made.report.given
    assert run("compile", model, "-o", "theirs.qglow") == 0
    assert run("run", "theirs.qglow", *data, "--samples", 4) == 0
    first = capsys.readouterr().out
    assert run("run", model, *data, "--samples", 4) == 0
    assert first.endswith(capsys.readouterr().out)
    assert run("compare", model, *data, "--samples", 64, "--min-agreement", 100) == 0
    assert "onnxruntime on the model itself" in capsys.readouterr().err
    assert run("bench", model, "--alternations", 2) == 0
    assert "float32" not in capsys.readouterr().out
    assert run("inspect", model, "--stage", "quantized") == 0
    assert "i8[S:" in capsys.readouterr().out
    assert run("explain", model, "logits/Gemm") == 0
    assert "the model's own" in capsys.readouterr().out


def test_a_profile_has_no_place_beside_parameters_and_one_of_both_is_needed(
    run: Run, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = quantize_with_onnxruntime("QDQ uint8 per channel", tmp_path)
    assert run("quantize", model, "--profile", profile) == 2
    assert "it takes no profile" in capsys.readouterr().err
    assert run("profile", model, "--data", CALIBRATION) == 2
    assert "quantize takes it without a profile" in capsys.readouterr().err
    assert run("quantize", MODEL) == 2
    assert "profile it, and give the profile" in capsys.readouterr().err
    assert run("quantize") == 2
    assert "--profile" in capsys.readouterr().err


def test_the_exported_form_of_an_imported_model_is_standard_onnx(tmp_path: Path, images: Array) -> None:
    made = load_model(quantize_with_onnxruntime("QOperator uint8 per channel", tmp_path)).quantize()
    made.export_qdq(tmp_path / "ours.onnx")
    onnx.checker.check_model(str(tmp_path / "ours.onnx"), full_check=True)
    expected = Interpreter(made.graph).run({"input": images[:1]})["logits"]
    assert np.mean(onnxruntime_logits(tmp_path / "ours.onnx", images[:1]) == expected) > 0.8


def test_the_type_of_exported_activations_is_chosen_and_kept(
    run: Run, profile: Path, tmp_path: Path, images: Array
) -> None:
    results = []
    for name in ("uint8", "int8"):
        target = tmp_path / name
        assert run("quantize", "--profile", profile, "--activation-type", name, "-o", target) == 0
        model = onnx.load(target / "model.qdq.onnx")
        read = {node.input[2] for node in model.graph.node if node.op_type == "QuantizeLinear"}
        zeros = {tensor.data_type for tensor in model.graph.initializer if tensor.name in read}
        assert zeros == {onnx.TensorProto.UINT8 if name == "uint8" else onnx.TensorProto.INT8}
        saved = load_quantized(target)
        assert saved.recipe.activation_type == name
        assert saved.qdq_bytes() == (target / "model.qdq.onnx").read_bytes()
        results.append(onnxruntime_logits(target / "model.qdq.onnx", images).argmax(1))
    assert run("quantize", "--profile", profile, "--activation-type", "int16") == 2
    assert np.mean(results[0] == results[1]) == 1.0


@pytest.mark.parametrize("name", ["uint8", "int8"])
def test_models_with_integers_at_both_ends_are_exported_read_and_compared(
    name: str, run: Run, profile: Path, tmp_path: Path
) -> None:
    target = tmp_path / "made"
    chosen = ("--io", "int8", "--activation-type", name)
    assert run("quantize", "--profile", profile, *chosen, "-o", target) == 0
    ours = load_quantized(target)
    pairing = compare(ours, TEST_DATA, samples=32).pairing(INT8, QDQ)
    assert pairing.agreement is not None and pairing.agreement.top1 == 1.0
    again = load_model(target / "model.qdq.onnx").quantize()
    assert (again.inputs, again.outputs) == (ours.inputs, ours.outputs)
    image = np.random.default_rng(0).integers(-128, 128, (1, 1, 8, 8)).astype(np.int8)
    found, expected = (made.compile()({"input": image})["logits"] for made in (again, ours))
    assert found.dtype == name
    shift = 128 if name == "uint8" else 0
    np.testing.assert_array_equal(found, expected.astype(np.int16) + shift)
    read = compare(again, TEST_DATA, samples=32)
    for other in (FLOAT, QDQ):
        agreement = read.pairing(INT8, other).agreement
        assert agreement is not None and agreement.top1 == 1.0
    assert run("bench", target / "model.qdq.onnx", "--alternations", 2) == 0
    assert run("bench", target, "--alternations", 2) == 0
    assert run("run", target / "model.qdq.onnx", "--data", TEST_DATA, "--samples", 2) == 0
