"""model.qglow: written whole, read back, refused when damaged, and never run on trust it was not given."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import ArtefactError
from qglow.core.types import float_type
from qglow.graph.builder import GraphBuilder
from qglow.graph.ops.linear import Gemm
from qglow.instructions.program import Program
from qglow.instructions.text import print_program
from qglow.runtime.artefact import load_artefact, program_identity
from qglow.toolchain import lower_graph
from qglow.toolchain.artefacts import load_executable, write_artefact
from qglow.toolchain.compilation import CompileOptions

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
    executable = load_executable(path, CompileOptions(isa="generic"))
    assert executable.isa == "generic"
    np.testing.assert_allclose(executable({"x": X})["y"], X @ W)


def test_writing_leaves_the_program_as_it_is(tmp_path: Path) -> None:
    given = program()
    before = print_program(given)
    write_artefact(tmp_path / "model.qglow", given)
    assert print_program(given) == before


def test_identity_depends_on_constants_and_not_on_code(tmp_path: Path) -> None:
    path = tmp_path / "model.qglow"
    write_artefact(path, program())
    assert load_artefact(path).identity == program_identity(program())
    assert program_identity(program()) != program_identity(program(2.0))


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
    members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
