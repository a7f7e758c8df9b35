"""Changes of PNG and JPEG files: headers and chunks with a right checksum, bombs, palettes, orientation."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image, PngImagePlugin

from tests.fuzz.mutators import raw
from tests.fuzz.mutators.raw import Random

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F", "YCbCr")


def chunk(kind: bytes, data: bytes) -> bytes:
    """A PNG chunk."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG by kind."""
    found, place = [], 8
    while place + 8 <= len(data):
        size = struct.unpack(">I", data[place : place + 4])[0]
        found.append((data[place + 4 : place + 8], data[place + 8 : place + 8 + size]))
        place += 12 + size
    return found


def png(
    width: int, height: int, depth: int = 8, color: int = 0, rows: bytes = b"", extra: bytes = b""
) -> bytes:
    """A PNG whose header may promise more than its data hold."""
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + body + chunk(b"IEND", b"")


def encoded(rng: Random, size: int = 8) -> tuple[str, bytes]:
    """A valid image in some mode and format, and the suffix of its file."""
    mode = MODES[int(rng.integers(len(MODES)))]
    image = Image.fromarray(rng.integers(0, 256, (size, size, 3)).astype(np.uint8))
    image = image.convert("I").convert("I;16") if mode == "I;16" else image.convert(mode)
    stream = io.BytesIO()
    for suffix in (("png", "jpg", "bmp", "webp")[int(rng.integers(4))], "png", "jpg"):
        try:
            exif = Image.Exif()
            exif[0x0112] = int(rng.integers(0, 10))
            image.save(stream, {"jpg": "jpeg"}.get(suffix, suffix), exif=exif)
            return suffix, stream.getvalue()
        except (OSError, KeyError, ValueError):
            stream = io.BytesIO()
    return "tiff", b"II*\0"


def mutated(rng: Random) -> tuple[str, bytes]:
    """An image that is not quite one, and the suffix of its file."""
    suffix, data = encoded(rng)
    draw = int(rng.integers(6))
    if draw == 0:
        return suffix, raw.mutated(rng, data)
    if draw == 1:
        width, height = (int(rng.choice([0, 1, 8, 65_535, 2**31 - 1, 2**32 - 1])) for _ in range(2))
        return "png", png(
            width, height, int(rng.choice([1, 2, 4, 8, 16, 3])), int(rng.integers(0, 8)), bytes(100)
        )
    if draw == 2:
        text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(int(rng.choice([10, 70_000_000])))))
        return "png", png(8, 8, rows=bytes(72), extra=text)
    if draw == 3 and suffix == "png":
        parts = chunks(data)
        index = int(rng.integers(len(parts)))
        kind, body = parts[index]
        parts[index] = (kind, raw.mutated(rng, body))
        return suffix, data[:8] + b"".join(chunk(*part) for part in parts)
    if draw == 4:
        info = PngImagePlugin.PngInfo()
        info.add(
            bytes(rng.choice([b"PLTE", b"tRNS", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"cHRM"])), rng.bytes(20)
        )
        stream = io.BytesIO()
        Image.new("L", (8, 8)).save(stream, "png", pnginfo=info)
        return "png", stream.getvalue()
    return str(rng.choice(["png", "jpg", "bmp", "webp", "npy", "jpeg"])), data
