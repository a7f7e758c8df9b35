"""Files appear whole or not at all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qglow.core.errors import InputFileError
from qglow.core.files import atomic_writer, file_sha256, sha256_hex, write_atomically


def test_text_and_bytes_are_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    write_atomically(path, "grün")
    assert path.read_bytes() == "grün".encode()
    write_atomically(path, b"\x00")
    assert path.read_bytes() == b"\x00"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_files_of_many_threads_have_the_mode_that_the_process_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: write_atomically(tmp_path / str(number), "x"), range(64)))
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_writer(path) as stream:
        stream.write(b"half of the new")
        raise RuntimeError
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with (
        pytest.raises(InputFileError, match=r"cannot write .*file: No space left"),
        atomic_writer(path) as stream,
    ):
        with open("/dev/full", "wb", buffering=0) as full:
            os.dup2(full.fileno(), stream.fileno())
        stream.write(b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputFileError, match="cannot write"):
        write_atomically(tmp_path / "file" / "inner", "x")


def test_files_have_the_users_permissions(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_atomically(tmp_path / "file", "x")
    finally:
        os.umask(old)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_a_file_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 300_000)
    assert file_sha256(path) == sha256_hex(path.read_bytes())
    with pytest.raises(InputFileError, match="cannot read .*missing: No such file"):
        file_sha256(tmp_path / "missing")
