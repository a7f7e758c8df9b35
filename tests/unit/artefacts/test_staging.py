from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

from qglow.artefacts.staging import MANIFEST, publish, read_checked, read_manifest
from qglow.core.arrays import pack_arrays, unpack_arrays
from qglow.core.errors import ArtefactError, InputFileError
from qglow.core.folders import staging_folder
from qglow.core.types import Array

FACTS = {"format": "things", "version": 3}


def written(target: Path) -> Path:
    with staging_folder(target) as folder:
        (folder / "a.txt").write_text("a")
        (folder / "b.bin").write_bytes(b"\0\1")
        publish(folder, target, FACTS)
    return target


def test_published_directory_reads_back(tmp_path: Path) -> None:
    target = written(tmp_path / "deep" / "out")
    manifest = read_manifest(target, "things", 3)
    assert set(manifest["files"]) == {"a.txt", "b.bin"}
    assert read_checked(target, manifest, "b.bin") == b"\0\1"
    assert [path.name for path in target.parent.iterdir()] == ["out"]


def test_digests_that_are_known_are_not_made_again(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with staging_folder(target) as folder:
        (folder / "a.txt").write_text("a")
        (folder / "b.bin").write_bytes(b"b")
        publish(folder, target, FACTS, {"a.txt": "given"})
    files = read_manifest(target, "things", 3)["files"]
    assert files["a.txt"] == "given" and len(files["b.bin"]) == 64


def test_failure_leaves_the_earlier_directory_untouched(tmp_path: Path) -> None:
    target = written(tmp_path / "out")
    with pytest.raises(RuntimeError), staging_folder(target) as folder:
        (folder / "a.txt").write_text("new")
        raise RuntimeError
    assert (target / "a.txt").read_text() == "a"
    assert read_manifest(target, "things", 3)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_manifest_goes_first_and_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, seen = written(tmp_path / "out"), []
    import qglow.artefacts.staging as staging

    real = staging.os.replace

    def replace(source: str | Path, name: str | Path) -> None:
        if Path(name).name != MANIFEST:
            seen.append((target / MANIFEST).exists())
        real(source, name)

    monkeypatch.setattr(staging.os, "replace", replace)
    written(target)
    assert seen == [False, False] and (target / MANIFEST).exists()


def test_no_moment_has_a_temporary_file_in_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be killed at any of these moments, and then nobody tidies up."""
    target = tmp_path / "out"
    real, moments = os.replace, []

    def replace(source: str | Path, name: str | Path) -> None:
        moments.append(sorted(path.name for path in target.iterdir()) if target.exists() else [])
        real(source, name)

    monkeypatch.setattr(os, "replace", replace)
    written(target)
    assert moments[-1] == ["a.txt", "b.bin"]
    assert {name for names in moments for name in names} == {"a.txt", "b.bin"}


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    written(tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputFileError, match="is a file"):
        written(tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no manifest.json"),
        ("{", "cannot read"),
        ("[]", "not the manifest"),
        (json.dumps({"format": "other", "version": 3}), "not the manifest"),
        (json.dumps({"format": "things", "version": 4}), "version 4"),
    ],
)
def test_manifest_that_is_not_whole_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(ArtefactError, match=said):
        read_manifest(tmp_path, "things", 3)


def test_changed_and_missing_files_are_refused(tmp_path: Path) -> None:
    target = written(tmp_path / "out")
    manifest = read_manifest(target, "things", 3)
    (target / "a.txt").write_text("b")
    with pytest.raises(ArtefactError, match="changed"):
        read_checked(target, manifest, "a.txt")
    (target / "a.txt").unlink()
    with pytest.raises(ArtefactError, match="cannot read"):
        read_checked(target, manifest, "a.txt")
    with pytest.raises(ArtefactError):
        read_checked(target, {**manifest, "files": None}, "b.bin")


def _packed(arrays: dict[str, Array]) -> bytes:
    stream = io.BytesIO()
    pack_arrays(stream, arrays)
    return stream.getvalue()


def test_arrays_pack_to_the_same_bytes_whatever_their_order() -> None:
    arrays = {"b": np.arange(6).reshape(2, 3).T, "a/x": np.float32(2.5), "c": np.zeros(0, np.int8)}
    packed = _packed(arrays)
    assert packed == _packed(dict(reversed(arrays.items())))
    restored = unpack_arrays(packed)
    assert set(restored) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(restored[name], array) and restored[name].shape == np.shape(array)
