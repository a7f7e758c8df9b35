"""model.qglow: written whole, read back, refused when damaged, and never run on trust it was not given."""

from __future__ import annotations

import contextlib
import json
import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qglow.codegen.cache import compiler_version
from qglow.core.errors import ArtefactError
from qglow.core.files import sha256_hex
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.ops.linear import Gemm
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.runtime.artefact import StoredProgram, load_artefact
from qglow.runtime.members import from_npy, to_npy
from qglow.toolchain import compile_lowered, lower_graph
from qglow.toolchain.artefacts import load_executable, write_artefact
from qglow.toolchain.compilation import CompileOptions
from tests.runtimes import NATIVE_ISAS, PLAIN

BEST = NATIVE_ISAS[-1]
"""A target with code of its own, not the one that every processor of the host's kind runs."""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))


def program(scale: float = 1.0) -> Program:
    builder = GraphBuilder("product")
    x = builder.input("x", float_type(2, 3))
    w = builder.constant("w", np.float32(scale) * W)
    return lower_graph(builder.finish(builder.node(Gemm(), x, w, None, name="y")))


def two_products() -> Program:
    """Of two shapes, so that there are two kernels."""
    builder = GraphBuilder("products")
    x = builder.input("x", float_type(2, 3))
    first, second = (builder.constant(name, w) for name, w in (("w", W), ("v", np.ascontiguousarray(W.T))))
    product = builder.node(Gemm(), x, first, None, name="y")
    return lower_graph(builder.finish(builder.node(Gemm(), product, second, None, name="z")))


@pytest.mark.parametrize("trust", [False, True])
def test_round_trip(tmp_path: Path, trust: bool) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program())
    executable = load_executable(path, trust=trust)
    np.testing.assert_allclose(executable({"x": X})["y"], X @ W)


def test_same_program_same_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_artefact(one, program())
    write_artefact(two, program(), CompileOptions(cache=False))
    assert one.read_bytes() == two.read_bytes()


def test_every_isa_of_the_host_loads(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program())
    executable = load_executable(path, CompileOptions(isa=PLAIN))
    assert executable.isa == PLAIN
    np.testing.assert_allclose(executable({"x": X})["y"], X @ W)


def test_writing_leaves_the_program_as_it_is(tmp_path: Path) -> None:
    given = program()
    before = print_program(given)
    write_artefact(tmp_path / "model.qglow", given)
    assert print_program(given) == before


def test_identity_depends_on_constants_and_not_on_code(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program())
    assert load_artefact(path).identity == StoredProgram.of(program()).identity
    assert StoredProgram.of(program()).identity != StoredProgram.of(program(2.0)).identity


def test_foreign_code_is_not_executed_without_trust(tmp_path: Path) -> None:
    path, forged = tmp_path / "model.qglow", tmp_path / "forged.qglow"
    write_artefact(path, program())
    other = tmp_path / "other.qglow"
    write_artefact(other, program(3.0))
    _graft(path, other, forged)
    np.testing.assert_allclose(load_executable(forged, trust=True)({"x": X})["y"], 3 * (X @ W))
    np.testing.assert_allclose(load_executable(forged)({"x": X})["y"], X @ W)


def test_damaged_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program())
    data = bytearray(path.read_bytes())
    at = data.index(b"function product")
    data[at] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ArtefactError, match="model.qglow"):
        load_executable(path)


@pytest.mark.parametrize("name", [f"{BEST}/weights.bin", f"{BEST}/code0.o"])
def test_damaged_code_is_refused_even_with_trust(tmp_path: Path, name: str) -> None:
    options = CompileOptions(isa=BEST)
    path = tmp_path / "model.qglow"
    write_artefact(path, program(), options)
    with zipfile.ZipFile(path) as archive:
        content = archive.read(name)
    data = bytearray(path.read_bytes())
    data[data.index(content)] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ArtefactError, match=f"{name} does not match its digest"):
        load_executable(path, options, trust=True)
    np.testing.assert_allclose(load_executable(path, options)({"x": X})["y"], X @ W)


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artefact whose code is in several object files."""
    path = tmp_path / "model.qglow"
    write_artefact(path, two_products(), CompileOptions(isa=BEST))
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "other cache"))
    return path


def test_code_in_several_files_is_loaded(several: Path) -> None:
    with zipfile.ZipFile(several) as archive:
        assert {f"{BEST}/code0.o", f"{BEST}/code1.o"} <= set(archive.namelist())
    for trust in (False, True):
        loaded = load_executable(several, CompileOptions(isa=BEST), trust)
        np.testing.assert_allclose(loaded({"x": X})["z"], X @ W @ W.T)


@pytest.mark.parametrize("count", [0, 1, -1, 99, 10**30, "2", 2.0, True, None, [2]], ids=repr)
def test_number_of_files_that_cannot_be_is_refused(several: Path, count: object) -> None:
    _change_manifest(several, lambda manifest: manifest["isas"][BEST].update(objects=count))
    with pytest.raises(ArtefactError, match="is damaged"):
        load_executable(several, CompileOptions(isa=BEST), trust=True)


@pytest.mark.parametrize("number", [0, 1])
def test_files_of_code_that_are_missing_are_noticed(several: Path, number: int) -> None:
    _change_manifest(several, lambda manifest: manifest["sha256"].pop(f"{BEST}/code{number}.o"))
    with pytest.raises(ArtefactError, match="is damaged"):
        load_executable(several, CompileOptions(isa=BEST), trust=True)


def test_weights_begin_at_the_edge_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program(), CompileOptions(isa=BEST))
    variant = load_artefact(path).variant(BEST, compiler_version())
    assert variant is not None and variant.weights.ctypes.data % 4096 == 0
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read(f"{BEST}/weights.bin") == variant.weights.tobytes()


def test_program_that_was_loaded_is_the_one_that_was_planned(tmp_path: Path) -> None:
    path, options = tmp_path / "model.qglow", CompileOptions(isa=PLAIN)
    write_artefact(path, program(), options)
    planned = print_program(compile_lowered(program(), options).program)
    for trust in (False, True):
        loaded = load_executable(path, options, trust).program
        assert print_program(loaded) == planned
        np.testing.assert_array_equal(loaded.buffer("w").data, program().buffer("w").data)


def test_code_of_an_earlier_compiler_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "model.qglow", tmp_path / "other.qglow"
    monkeypatch.setattr("qglow.targets.native.target.compiler_version", lambda: "an earlier one")
    write_artefact(path, program())
    write_artefact(other, program(3.0))
    monkeypatch.undo()
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))
    forged = tmp_path / "forged.qglow"
    _graft(path, other, forged)
    np.testing.assert_allclose(load_executable(forged, trust=True)({"x": X})["y"], X @ W)


def test_program_that_would_leave_its_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = members["program.txt"]
    members["program.txt"] = text.replace(b"float<2 x 4>", b"float<9 x 4>")
    assert members["program.txt"] != text
    manifest = json.loads(members["manifest.json"])
    manifest["sha256"]["program.txt"] = sha256_hex(members["program.txt"])
    _write_members(path, {**members, "manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(ArtefactError, match="is damaged"):
        load_executable(path)


def test_random_damage_is_refused_or_harmless(tmp_path: Path) -> None:
    path, damaged = tmp_path / "model.qglow", tmp_path / "damaged.qglow"
    write_artefact(path, program())
    data, draw = path.read_bytes(), random.Random(0)
    for _ in range(150):
        content = bytearray(data[: draw.choice([len(data), draw.randrange(len(data))])])
        for at in draw.sample(range(len(content)), min(3, len(content))):
            content[at] = draw.randrange(256)
        damaged.unlink(missing_ok=True)
        damaged.write_bytes(content)
        with contextlib.suppress(ArtefactError):
            load_executable(damaged)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04garbage", b"not a zip at all" * 99])
def test_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.qglow"
    path.write_bytes(content)
    with pytest.raises(ArtefactError, match="not a readable artefact"):
        load_executable(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no such file"):
        load_executable(tmp_path / "absent.qglow")


def test_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps({"format": 99}))
    with pytest.raises(ArtefactError, match="format 99"):
        load_executable(path)


def test_damaged_cache_entry_is_compiled_anew(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program())
    for entry in (tmp_path / "cache").rglob("*.qglow"):
        entry.write_bytes(b"rubbish")
    np.testing.assert_allclose(load_executable(path)({"x": X})["y"], X @ W)


def _graft(program_of: Path, code_of: Path, target: Path) -> None:
    """An artefact with one file's program and another's code, its digests made to fit."""
    with zipfile.ZipFile(program_of) as one, zipfile.ZipFile(code_of) as two:
        members = {name: one.read(name) for name in one.namelist()}
        for name in two.namelist():
            if "/" in name and not name.startswith("constants/"):
                members[name] = two.read(name)
        manifest = json.loads(members["manifest.json"])
        digests = json.loads(two.read("manifest.json"))["sha256"]
        for name in manifest["sha256"]:
            if "/" in name and not name.startswith("constants/"):
                manifest["sha256"][name] = digests[name]
    _write_members(target, {**members, "manifest.json": json.dumps(manifest).encode()})


def _change_manifest(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    _write_members(path, {**members, "manifest.json": json.dumps(manifest).encode()})


def _write_members(path: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_files_that_are_taken_for_artefacts_say_what_opens_them(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"\x08\x07")
    with pytest.raises(ArtefactError, match=r"ONNX model; open it with `qglow\.load_model`"):
        load_executable(model)
    with pytest.raises(ArtefactError, match=r"is a directory; open a quantized model with"):
        load_executable(tmp_path)


@pytest.mark.parametrize("array", [np.array(3, np.int32), np.float32(0.5), X.T, np.zeros((0, 2), np.int8)])
def test_constants_keep_their_shape(array: Any) -> None:
    """A number has no axes, such as the counter that a loop begins with."""
    again = from_npy(memoryview(to_npy(array)))
    assert again.dtype == np.asarray(array).dtype
    assert again.shape == np.shape(array)
    np.testing.assert_array_equal(again, array)
