"""Changes of .npy and .npz files: headers, shapes, types, members, special values."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np

from tests.fuzz.mutators import raw
from tests.fuzz.mutators.raw import Random
from tests.fuzz.mutators.texts import HOSTILE

DESCRIPTIONS = (
    "<f4",
    ">f4",
    "<f8",
    "<f2",
    "|u1",
    "<i8",
    "|b1",
    "<c8",
    "|O",
    "|S5",
    "<U3",
    "<M8[s]",
    "|V0",
    "<f99",
    "x",
    "|S999999999",
)
SPECIAL = (np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -0.0)


def header(description: str, shape: str, order: str = "False", version: bytes = b"\x01\x00") -> bytes:
    """The first bytes of an .npy file that claims this."""
    text = f"{{'descr': {description!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode(
        "latin-1", "replace"
    )
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) & 0xFFFF)
    return b"\x93NUMPY" + version + size + text


def _shape(rng: Random, true: tuple[int, ...]) -> str:
    shapes = (
        str(true), "()", "(0,)", "(-1,)", "(1,)", "(99999999999,)", "(4611686018427387904, 4)", "(2**40,)",
        "[1]", "1", "('a',)",
        "(1, 1, 1, 8, 8)", "(True,)", "(1.0,)",
        "(" + "1, " * 70 + ")", "(" * 500, "None", "__import__('os')", "(1, 10000000000, 0)",
    )  # fmt: skip
    return shapes[int(rng.integers(len(shapes)))]


def npy(array: np.ndarray) -> bytes:
    """An array as .npy, pickled where it holds objects."""
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def mutated_array(rng: Random, array: np.ndarray) -> bytes:
    """An .npy file that is not quite that array."""
    draw = int(rng.integers(8))
    if draw == 0:
        return raw.mutated(rng, npy(array))
    if draw == 1:
        kind = DESCRIPTIONS[int(rng.integers(len(DESCRIPTIONS)))]
        order = str(rng.choice(["False", "True", "None", "7"]))
        version = [b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"][int(rng.integers(4))]
        return header(kind, _shape(rng, array.shape), order, version) + array.tobytes()
    if draw == 2:
        changed = np.array(array)
        if changed.size and changed.dtype.kind == "f":
            changed.reshape(-1)[int(rng.integers(changed.size))] = SPECIAL[int(rng.integers(len(SPECIAL)))]
        elif changed.size:
            info = np.iinfo(changed.dtype)
            changed.reshape(-1)[int(rng.integers(changed.size))] = (
                info.max if rng.random() < 0.5 else info.min
            )
        return npy(changed)
    if draw == 3:
        kinds = (
            np.float64,
            np.float16,
            np.uint8,
            np.int8,
            np.int64,
            np.uint64,
            np.bool_,
            np.complex64,
            ">f4",
            "U3",
        )
        with np.errstate(all="ignore"):
            return npy(np.nan_to_num(array).astype(kinds[int(rng.integers(len(kinds)))]))
    if draw == 4:
        axis = int(rng.integers(array.ndim + 1))
        return npy(np.expand_dims(array, axis) if rng.random() < 0.5 else array.reshape(-1))
    if draw == 5:
        return npy(array[: int(rng.integers(2))] if array.ndim else array)
    if draw == 6:
        return (
            npy(np.asarray(rng.choice([0.0, np.nan, 1e9])))
            if rng.random() < 0.5
            else npy(np.array([{}, None]))
        )
    return npy(np.asarray(array, order="F")[::-1])


def mutated_archive(rng: Random, data: bytes) -> bytes:
    """An .npz file with other members, names and headers."""
    if rng.random() < 0.25:
        return raw.mutated(rng, data)
    with np.load(io.BytesIO(data)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    chosen = list(arrays)[int(rng.integers(len(arrays)))]
    stream = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.3 else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, array in arrays.items():
            content = mutated_array(rng, array) if name == chosen else npy(array)
            if name == chosen and rng.random() < 0.15:
                archive.writestr(HOSTILE[int(rng.integers(len(HOSTILE)))].replace("\0", "0") or "x", content)
                continue
            archive.writestr(f"{name}.npy", content)
        if rng.random() < 0.1:
            archive.writestr("label.npy", header("<i8", "(400000000,)") + bytes(1 << 20))
    return stream.getvalue()
