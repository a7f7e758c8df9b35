"""Samples beside a profile: which are kept, that they come back, and that nothing bad gets in."""

from __future__ import annotations

import io
import itertools
import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qglow.core.arrays import pack_arrays
from qglow.core.errors import ProfileError, UsageError
from qglow.core.files import sha256_hex
from qglow.core.types import Array
from qglow.profiling import kept
from qglow.profiling.engine import InterpreterEngine
from qglow.profiling.kept import Keeper, KeptRecord, pack_kept, read_kept, samples_path
from qglow.profiling.profile import Profile, merge
from qglow.profiling.profile_file import load, save
from qglow.profiling.profiler import profile
from qglow.profiling.samples import Sample, sample_digest
from tests.unit.profiling.networks import MODEL, residual_network, samples

SHAPES = {"x": (1, 3, 6, 6)}


def taken(data: list[Sample], keep: int = 8, batch_size: int = 1) -> Profile:
    engine = InterpreterEngine(residual_network)
    return profile(residual_network(), data, engine, model=MODEL, batch_size=batch_size, keep_samples=keep)


def digests(data: list[Sample]) -> list[str]:
    return sorted(sample_digest(sample.inputs).hex() for sample in data)


def test_the_smallest_digests_are_kept_in_any_order_and_batch() -> None:
    data = samples(20)
    found = taken(data)
    assert [sample.key for sample in found.kept] == digests(data)[:8]
    assert pack_kept(found.kept) == pack_kept(taken(data[::-1], batch_size=3).kept)
    by_digest = {sample_digest(sample.inputs).hex(): sample for sample in data}
    for sample in found.kept:
        np.testing.assert_array_equal(sample.inputs["x"], by_digest[sample.key].inputs["x"])


def test_kept_samples_are_copies() -> None:
    buffer = np.zeros((3, 6, 6), np.float32)

    def reused() -> Iterator[Sample]:
        for number in range(4):
            buffer[...] = number
            yield Sample(f"{number}", {"x": buffer})

    engine = InterpreterEngine(residual_network)
    found = profile(residual_network(), reused(), engine, model=MODEL)
    assert sorted(float(sample.inputs["x"][0, 0, 0]) for sample in found.kept) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("keep", [0, 3, 8, 30])
def test_merging_keeps_what_one_run_keeps(keep: int) -> None:
    data = samples(20)
    parts = [taken(data[start : start + 7], keep) for start in range(0, 20, 7)]
    whole = taken(data, keep)
    for order in itertools.permutations(parts):
        assert pack_kept(merge(order).kept) == pack_kept(whole.kept)
    assert len(whole.kept) == min(keep, 20)
    assert pack_kept(merge([whole, whole]).kept) == pack_kept(whole.kept)


def test_bytes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    data = samples(20)
    size = data[0].inputs["x"].nbytes
    monkeypatch.setattr(kept, "LARGEST_KEPT", 3 * size + 5)
    assert [sample.key for sample in taken(data).kept] == digests(data)[:3]
    monkeypatch.setattr(kept, "LARGEST_KEPT", size - 1)
    found = taken(data)
    assert found.kept == () and f"one has {size} bytes" in found.kept_note


def test_a_name_that_no_archive_holds_keeps_nothing() -> None:
    keeper = Keeper(8)
    keeper.add(Sample("0", {"a\0b": np.zeros(1, np.float32)}), "00")
    assert keeper.samples == () and "no archive" in keeper.note


@pytest.mark.parametrize("limit", [-1, 1025])
def test_a_wrong_limit_is_refused(limit: int) -> None:
    with pytest.raises(UsageError, match="keep_samples"):
        Keeper(limit)


def test_files_come_back_with_the_same_bytes(tmp_path: Path) -> None:
    found = taken(samples(20))
    for name in ("one.yaml", "other.v2.yaml"):
        save(found, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "one.samples.npz", "one.yaml", "other.v2.samples.npz", "other.v2.yaml",
    ]  # fmt: skip
    again = load(tmp_path / "one.yaml")
    assert pack_kept(again.kept) == pack_kept(found.kept) == (tmp_path / "one.samples.npz").read_bytes()
    assert again.keep_samples == 8 and not again.kept_note
    with np.load(tmp_path / "one.samples.npz") as archive:
        assert archive["x"].shape == (8, 3, 6, 6)


def test_none_kept_removes_those_of_an_earlier_run(tmp_path: Path) -> None:
    save(taken(samples(9)), tmp_path / "p.yaml")
    save(taken(samples(9), keep=0), tmp_path / "p.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["p.yaml"]
    assert load(tmp_path / "p.yaml").kept == ()


def test_missing_samples_are_told_and_changed_ones_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    save(taken(samples(9)), path)
    beside = samples_path(path)
    data = bytearray(beside.read_bytes())
    data[-200] ^= 1
    beside.write_bytes(data)
    with pytest.raises(ProfileError, match=r"p\.samples\.npz: not the samples .*profile the model again"):
        load(path)
    beside.unlink()
    found = load(path)
    assert found.kept == () and "p.samples.npz" in found.kept_note and "missing" in found.kept_note


def test_a_profile_of_the_first_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    save(taken(samples(9), keep=0), path)
    text = (
        path.read_text().replace("version: 2", "version: 1").replace("kept:\n  limit: 0\n  samples: 0\n", "")
    )
    path.write_text(text)
    found = load(path)
    assert (found.samples, found.kept, found.keep_samples, found.kept_note) == (9, (), 0, "")
    assert not merge([found, found]).kept


def packed(arrays: dict[str, Array], compression: int | None = None) -> bytes:
    stream = io.BytesIO()
    if compression is None:
        pack_arrays(stream, arrays)
    else:
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def members(**contents: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in contents.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def npy(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def stacked(**changes: object) -> dict[str, Array]:
    rows = sorted(samples(2), key=lambda sample: sample_digest(sample.inputs))
    return {"x": np.stack([sample.inputs["x"] for sample in rows])}


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "no archive": (lambda: b"text", "zip"),
    "nothing": (lambda: b"", "zip"),
    "compressed": (lambda: packed(stacked(), zipfile.ZIP_DEFLATED), "compressed"),
    "another name": (lambda: packed({"y": stacked()["x"]}), "one array for each"),
    "one more": (lambda: packed({**stacked(), "y": stacked()["x"]}), "one array for each"),
    "out of order": (lambda: packed({"x": stacked()["x"][::-1]}), "order"),
    "twice the same": (lambda: packed({"x": stacked()["x"][[0, 0]]}), "order"),
    "another shape": (lambda: packed({"x": stacked()["x"][:, :2]}), "shape"),
    "too many": (lambda: packed({"x": np.concatenate([stacked()["x"]] * 2)}), "shape"),
    "pickled": (
        lambda: members(x=npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3, 6, 6)}") + b"x" * 64),
        "not numbers",
    ),
    "huge": (
        lambda: members(x=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999, 9999999), }")),
        "shape",
    ),
    "short": (
        lambda: members(x=npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 6, 6), }") + b"x"),
        "bytes",
    ),
    "bad header": (lambda: members(x=npy("{'descr': '<f4', ")), "not numbers"),
    "no header": (lambda: members(x=b"\x93NUMPY\x01\x00\xff"), "not numbers"),
    "no array": (lambda: members(x=b"hello"), "not numbers"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_one_line_of_error(tmp_path: Path, case: str) -> None:
    make, message = HOSTILE[case]
    path = tmp_path / "p.samples.npz"
    data = make()
    path.write_bytes(data)
    with pytest.raises(ProfileError, match=message) as found:
        read_kept(path, KeptRecord(2, sha256_hex(data)), SHAPES)
    assert str(found.value).startswith(str(path)) and "\n" not in str(found.value)


def test_well_formed_bytes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.samples.npz"
    path.write_bytes(packed(stacked()))
    found = read_kept(path, KeptRecord(2, sha256_hex(path.read_bytes())), SHAPES)
    assert [sample.key for sample in found] == digests(samples(2))


def test_large_and_special_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "p.samples.npz"
    with path.open("wb") as stream:
        stream.truncate(2**40)
    with pytest.raises(ProfileError, match="at most"):
        read_kept(path, KeptRecord(2, "0" * 64), SHAPES)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ProfileError, match="not a file"):
        read_kept(path, KeptRecord(2, "0" * 64), SHAPES)


def test_a_failed_write_leaves_both_files_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    save(taken(samples(9)), path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    broken = replace(taken(samples(12)), values=None)
    with pytest.raises(TypeError):
        save(broken, path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
