"""Operators from a library that the user names: in models, artefacts and commands, and refused without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import qglow
from qglow.cli.main import main
from qglow.core.errors import ArtefactError, InputFileError, QglowError, UnsupportedError, UsageError
from qglow.core.types import Array
from qglow.host import libraries
from qglow.host.session import prepare
from tests.custom_operators import build_library
from tests.unit.importer.tiny import save, tiny_model

RNG = np.random.default_rng(8)
X = RNG.standard_normal((32, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("acme"))


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has loaded no library yet."""
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_loaded", [])
    prepare.cache_clear()


def model_path(folder: Path, op_type: str = "Bend") -> Path:
    """A product, a custom operator, and another product, or a negation of however many elements."""
    last = ["b", "v"] if op_type == "Bend" else ["b"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node(op_type, ["a"], ["b"], name="custom", domain="acme"),
        helper.make_node("MatMul" if op_type == "Bend" else "Neg", last, ["y"], name="last"),
    ]
    weights = {name: (RNG.standard_normal((8, 8)) / 2).astype(np.float32) for name in ("w", "v")}
    model = tiny_model(nodes, {"x": [1, 8]}, ["y"], weights)
    model.opset_import.add(domain="acme", version=1)
    return save(model, folder)


def in_onnxruntime(path: Path, library: Path, x: Array) -> Array:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(library))
    options.add_session_config_entry("session.x64quantprecision", "1")  # no sums that saturate
    result: Array = onnxruntime.InferenceSession(path, options).run(None, {"x": x})[0]
    return result


def test_a_model_is_quantized_around_a_custom_operator(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = model_path(tmp_path)
    model = qglow.load_model(path, custom_ops=library)
    assert "'custom' (acme.Bend)" in " ".join(model.bound) and "one node runs" in " ".join(model.bound)
    wanted = in_onnxruntime(path, library, X[:1])
    np.testing.assert_allclose(model.compile()({"x": X[:1]})["y"], wanted, rtol=1e-5)
    quantized = model.quantize(model.profile({"x": X}))
    assert "2 nodes in int8" in repr(quantized)
    quantized.save(tmp_path / "q")
    found = quantized.compile()({"x": X[:1]})["y"]
    np.testing.assert_allclose(found, wanted, atol=0.1)
    np.testing.assert_allclose(
        in_onnxruntime(tmp_path / "q" / "model.qdq.onnx", library, X[:1]), found, atol=0.05
    )
    forget(monkeypatch)
    remedy = r"onnxruntime has no acme\.Bend; name the library that has it with `custom_ops`"
    for load in (qglow.load, qglow.load_model):
        with pytest.raises(QglowError, match=remedy):
            load(tmp_path / "q" / "model.qglow") if load is qglow.load else load(path)
    loaded = qglow.load(tmp_path / "q" / "model.qglow", custom_ops=[library])
    np.testing.assert_array_equal(loaded({"x": X[:1]})["y"], found)
    forget(monkeypatch)
    again = qglow.load_quantized(tmp_path / "q", custom_ops=library).interpret({"x": X[:1]})["y"]
    np.testing.assert_array_equal(again, found)


def test_a_custom_operator_whose_data_decides_a_shape_is_behind_the_program(
    tmp_path: Path, library: Path
) -> None:
    path = model_path(tmp_path, "Keep")
    model = qglow.load_model(path, custom_ops=[str(library)])
    assert model.untyped_outputs == ("y",)
    np.testing.assert_allclose(
        model.compile()({"x": X[:1]})["y"], in_onnxruntime(path, library, X[:1]), rtol=1e-5
    )


def test_commands_take_libraries(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = str(model_path(tmp_path)), tmp_path / "x.npz"
    np.savez(data, x=X)
    given = ["--custom-ops", str(library)]
    monkeypatch.chdir(tmp_path)
    assert main(["profile", path, "--data", str(data), "-o", "p.yaml"]) == UnsupportedError.exit_code
    said = capsys.readouterr().err
    assert "name the library that has it with --custom-ops" in said and len(said.splitlines()) <= 3
    assert not Path("p.yaml").exists()
    for command in (
        ["profile", path, "--data", str(data), "-o", "p.yaml"],
        ["quantize", "--profile", "p.yaml", "-o", "q"],
        ["run", "q/model.qglow", "--data", str(data), "-o", "y.npz"],
        ["compare", "q", "--data", str(data)],
        ["bench", "q", "--alternations", "2"],
    ):
        forget(monkeypatch)
        assert main([*command, *given]) == 0, capsys.readouterr().err
        if command[0] in ("quantize", "compare", "bench"):
            assert "one node runs in onnxruntime, " in capsys.readouterr().out
    forget(monkeypatch)
    assert main(["run", "q/model.qglow", "--data", str(data)]) == ArtefactError.exit_code
    assert "--custom-ops" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, InputFileError, "no such file"),
        (b"no library", UsageError, "is no library of custom operators for onnxruntime"),
    ],
)
def test_files_that_are_no_library_are_refused(
    tmp_path: Path, content: bytes | None, error: type[QglowError], message: str
) -> None:
    path = tmp_path / "lib.so"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        qglow.load_model(model_path(tmp_path), custom_ops=path)
    assert libraries.loaded_libraries() == ()


def test_an_operator_that_a_named_library_lacks_is_refused(tmp_path: Path, library: Path) -> None:
    nodes = [helper.make_node("Absent", ["x"], ["y"], name="custom", domain="acme")]
    model = tiny_model(nodes, {"x": [1, 8]}, ["y"])
    model.opset_import.add(domain="acme", version=1)
    with pytest.raises(UnsupportedError, match=r"neither onnxruntime nor .*libacme.so has acme\.Absent"):
        qglow.load_model(save(model, tmp_path), custom_ops=library)
