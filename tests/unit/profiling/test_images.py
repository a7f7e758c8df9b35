"""Images of every kind that Pillow reads: converted as it means them, or refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from qglow.core.errors import DataError
from qglow.profiling.images import load_image
from qglow.recipe import Preprocessing

RED = (200, 10, 30)


def png_of(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of these chunks, each a name and data."""
    parts = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def saved(image: Image.Image, folder: Path, name: str = "image.png", **options: object) -> Path:
    path = folder / name
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def plain(mode: str = "RGB") -> Image.Image:
    image = Image.new("RGB", (6, 4), RED)
    return image.quantize(4) if mode == "P" else image.convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "P", "RGBA"])
def test_opaque_images_of_any_mode_are_their_colours(mode: str, tmp_path: Path) -> None:
    found = load_image(saved(plain(mode), tmp_path), Preprocessing())
    np.testing.assert_array_equal(found[:, 0, 0], RED)


@pytest.mark.parametrize(("mode", "colour", "shown"), [("L", 77, 77), ("LA", (77, 255), 77), ("1", 1, 255)])
def test_grey_images_have_three_equal_channels(
    mode: str, colour: int | tuple[int, int], shown: int, tmp_path: Path
) -> None:
    found = load_image(saved(Image.new(mode, (6, 4), colour), tmp_path), Preprocessing())
    assert found.shape == (3, 4, 6) and set(found.ravel()) == {shown}


def test_cmyk_is_converted_as_pillow_does(tmp_path: Path) -> None:
    path = saved(Image.new("CMYK", (8, 8), (10, 200, 30, 0)), tmp_path, "image.jpg", quality=100)
    with Image.open(path) as image:
        expected = np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1)
    np.testing.assert_array_equal(load_image(path, Preprocessing()), expected)


def test_photos_stand_upright(tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 4), (0, 0, 0))
    image.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    found = load_image(saved(image, tmp_path, exif=exif), Preprocessing())
    assert found.shape == (3, 8, 4)
    np.testing.assert_array_equal(found[:, 0, 3], RED)


@pytest.mark.parametrize("kind", ["I;16", "I", "F"])
def test_more_than_8_bits_are_refused(kind: str, tmp_path: Path) -> None:
    pixels = np.full((4, 6), 40000, {"I;16": np.uint16, "I": np.int32, "F": np.float32}[kind])
    path = tmp_path / "image.png"
    Image.fromarray(pixels).save(path, format="PNG" if kind == "I;16" else "TIFF")
    with pytest.raises(DataError, match="more than 8 bits"):
        load_image(path, Preprocessing(channels="GRAY"))


@pytest.mark.parametrize(("kind", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_png_of_16_bits_is_refused(kind: int, channels: int, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    head = struct.pack(">IIBBBBB", 6, 4, 16, kind, 0, 0, 0)
    row = b"\0" + b"\xff" * (6 * 2 * channels)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(row * 4)), (b"IEND", b""))
    path.write_bytes(png_of(*chunks))
    with pytest.raises(DataError, match="more than 8 bits"):
        load_image(path, Preprocessing())


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_are_refused(mode: str, tmp_path: Path) -> None:
    options = {"transparency": 0} if mode == "P" else {}
    image = Image.new(mode, (6, 4), 0)
    with pytest.raises(DataError, match="transparent"):
        load_image(saved(image, tmp_path, **options), Preprocessing())


def test_a_text_bomb_is_one_error(tmp_path: Path) -> None:
    info = PngImagePlugin.PngInfo()
    for number in range(80):
        info.add_text(f"key{number}", "x" * (1 << 20), zip=True)
    path = saved(plain(), tmp_path, pnginfo=info)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="cannot read the image"):
        load_image(path, Preprocessing())


def test_a_decompression_bomb_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "bomb.png"
    size = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    path.write_bytes(png_of((b"IHDR", size), (b"IDAT", zlib.compress(b""))))
    with pytest.raises(DataError, match="decompression bomb"):
        load_image(path, Preprocessing())


def test_absurd_sizes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at most 32768"):
        Preprocessing(resize=10**9)
    with pytest.raises(ValueError, match="at most 32768"):
        Preprocessing(letterbox=(8, 10**9))
    path = saved(Image.new("RGB", (2, 4000)), tmp_path)
    for preprocessing in (Preprocessing(resize=30000), Preprocessing(letterbox=(32768, 32768))):
        with pytest.raises(DataError, match="use a smaller resize"):
            load_image(path, preprocessing)
