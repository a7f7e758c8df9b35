"""Files that are damaged in odd ways are an OSError or a ValueError, never anything else."""

from __future__ import annotations

import errno
import io
import mmap
import os
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from qglow.core.errors import MemoryLimitError
from qglow.core.reading import (
    load_array,
    load_arrays,
    map_part,
    open_regular,
    parse_json,
    read_bytes,
    read_or_map,
    read_text,
    size_of,
)
from qglow.profiling.archived import read_rows

HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4",
    "{" * 3000,
    "(" * 90,
    "'''abc",
    "\0\0",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999, 4), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -4), }\n",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 99), }\n",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2, 4), }\n",
    "{'descr': 'xx', 'fortran_order': False, 'shape': (2, 4), }\n",
    "[1]\n",
    "{1:2}\n",
    "",
    "\\\n",
    "  a\n b",
]


def with_header(header: str, version: int) -> bytes:
    data = header.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(data))
    return b"\x93NUMPY" + bytes([version, 0]) + size + data + bytes(16)


@pytest.mark.parametrize("version", [1, 2, 3, 9])
@pytest.mark.parametrize("header", HEADERS)
def test_damaged_headers_are_value_errors(header: str, version: int, tmp_path: Path) -> None:
    path, archive = tmp_path / "x.npy", tmp_path / "x.npz"
    path.write_bytes(with_header(header, version))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(path, "x.npy")
    for mapped in (False, True):
        with pytest.raises((OSError, ValueError, MemoryError)):
            load_array(path, mapped=mapped)
    with pytest.raises((OSError, ValueError, MemoryError)):
        load_arrays(archive)
    with zipfile.ZipFile(archive) as file, pytest.raises((OSError, ValueError)):
        read_rows(file, "x", lambda rows: rows)


def test_a_header_whose_size_overflows_is_refused_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }\n"
    path.write_bytes(with_header(text, 1))
    for mapped in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match="more than the file has; it is damaged"):
                load_array(path, mapped=mapped)


def test_json_is_strict_and_flat() -> None:
    assert parse_json('{"a": [1, {"b": 2}]}') == {"a": [1, {"b": 2}]}
    with pytest.raises(ValueError, match="'a' twice"):
        parse_json('[{"a": 1, "b": 2, "a": 3}]')
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 200_000 + "]" * 200_000)
    with pytest.raises(ValueError, match="utf-8"):
        parse_json(b'"\xff"')


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path, Path("a\0b"), Path("a" * 5000)):
        for read in (open_regular, read_bytes, read_text, load_array, load_arrays):
            with pytest.raises(OSError):
                read(path)


def archive_of(**arrays: np.ndarray) -> zipfile.ZipFile:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return zipfile.ZipFile(stream)


@pytest.mark.parametrize("order", ["C", "F"])
def test_rows_are_those_of_the_whole(order: str) -> None:
    x = np.arange(60, dtype=np.int16).reshape(5, 3, 4)
    with archive_of(x=np.asarray(x, order=order)) as archive:
        rows = read_rows(archive, "x", lambda count: count - 2)
    assert (rows.shape, rows.dtype, rows.ndim) == ((5, 3, 4), np.int16, 3)
    assert rows.is_whole == (order == "F")
    for index in range(3):
        np.testing.assert_array_equal(rows[index], x[index])
    with archive_of(x=np.float32(3)) as archive:
        assert read_rows(archive, "x", lambda count: count).held == 3


def test_no_more_of_a_member_is_unpacked_than_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QGLOW_MAX_MEMORY", "4M")
    with archive_of(x=np.zeros((64, 1 << 18), np.uint8)) as archive:
        assert read_rows(archive, "x", lambda count: 3).held.nbytes == 3 << 18
        with pytest.raises(MemoryLimitError, match="array 'x'"):
            read_rows(archive, "x", lambda count: count)


def test_a_member_that_is_shorter_than_it_says_is_damaged() -> None:
    stream = io.BytesIO()
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 64), }\n"
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("x.npy", with_header(header, 1))
    with zipfile.ZipFile(stream) as archive, pytest.raises(ValueError, match="more than the file has"):
        read_rows(archive, "x", lambda count: 1)


@pytest.mark.parametrize(("offset", "size"), [(0, 10), (4095, 3), (4096, 100), (5000, 0), (9999, 1)])
def test_parts_are_mapped_at_any_offset(offset: int, size: int, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(10_000)
    (tmp_path / "data").write_bytes(content)
    with (tmp_path / "data").open("rb") as stream:
        assert bytes(map_part(stream, offset, size)) == content[offset : offset + size]
        assert size_of(stream) == 10_000


def test_a_part_beyond_the_end_is_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(100))
    with (tmp_path / "data").open("rb") as stream, pytest.raises(ValueError, match="size"):
        map_part(stream, 50, 51)


def test_large_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_bytes(bytes(range(100)))
    for limit, kind in ((100, bytes), (99, mmap.mmap)):
        monkeypatch.setattr("qglow.core.reading.MAPPED", limit)
        content = read_or_map(tmp_path / "data")
        assert bytes(content) == bytes(range(100)) and isinstance(content.obj, kind)


def test_a_file_that_cannot_be_mapped_is_a_matter_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").write_bytes(bytes(64))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("qglow.core.reading.mmap.mmap", refuse)
    with (
        (tmp_path / "weights").open("rb") as stream,
        pytest.raises(MemoryLimitError, match="cannot be mapped"),
    ):
        map_part(stream, 0, 64)
