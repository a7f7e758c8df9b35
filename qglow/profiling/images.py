"""Images as model inputs: decoding (Pillow, the extra `images`) and a recipe's preprocessing."""

from __future__ import annotations

import importlib
import math
import re
import struct
import warnings
import zlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from qglow.core.errors import DataError, UsageError
from qglow.core.types import Array
from qglow.recipe.data import Preprocessing

if TYPE_CHECKING:
    from PIL import Image

_MOST_PIXELS = 2**27
"""Pixels of an image that is resized; Pillow refuses to read larger ones."""
_DAMAGED = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, SyntaxError, TypeError),
    *(ValueError, struct.error, zlib.error),
)
"""What Pillow raises for files that are damaged."""
_WIDE = re.compile(r";16[BLNS]")
"""Raw modes of Pillow with 16 bits a channel, of which it would drop 8."""
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})


def find_images(root: Path) -> list[Path]:
    """Every image file below `root`, sorted by its path relative to it."""
    found = (path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def load_image(path: Path, preprocessing: Preprocessing) -> Array:
    """An image file as float32 model input, without a batch axis.

    EXIF orientation is applied. Raises DataError if the file is not a whole image, is far larger than images
    are, or has more than 8 bits a channel or transparent pixels; UsageError if Pillow is missing.
    """
    return preprocess(_decoded(path), preprocessing, str(path))


def _decoded(path: Path) -> Image.Image:
    """The whole image of a file, upright, with 8 bits a channel. Raises DataError."""
    module = _pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large images; what is too large is an error
            with module.open(path) as file:
                wide = any(_WIDE.search(str(tile[3])) for tile in file.tile)
                file.load()
                image: Image.Image = importlib.import_module("PIL.ImageOps").exif_transpose(file)
                opaque = not image.has_transparency_data or _is_opaque(image)
    except (module.DecompressionBombError, *_DAMAGED) as error:
        raise DataError(f"cannot read the image {path}: {' '.join(str(error).split())[:200]}") from error
    if wide or image.mode.startswith(("I", "F")):
        raise DataError(f"{path} has more than 8 bits a channel; convert it to 8 bits, or give arrays")
    if not opaque:
        raise DataError(f"{path} has transparent pixels; put it on the background that the model expects")
    return image


def _is_opaque(image: Image.Image) -> bool:
    lowest, _ = image.convert("RGBA").getchannel("A").getextrema()
    return bool(lowest == 255)


def preprocess_pixels(pixels: Array, preprocessing: Preprocessing, where: str) -> Array:
    """uint8 pixels [H,W], [H,W,1] or RGB [H,W,3] as float32 model input, as an image file would be.

    Raises DataError, naming `where`, for another shape.
    """
    gray = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 1)
    if not gray and (pixels.ndim != 3 or pixels.shape[2] != 3):
        raise DataError(
            f"{where}: uint8 pixels {list(pixels.shape)}; preprocessing takes [H, W], [H, W, 1] or [H, W, 3]"
        )
    same_size = preprocessing.resize is None and preprocessing.letterbox is None
    if same_size and gray == (preprocessing.channels == "GRAY"):
        return _normalise(_crop(pixels.reshape(*pixels.shape[:2], -1), preprocessing, where), preprocessing)
    image = _pillow().fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.ndim == 3 and gray else pixels))
    return preprocess(image, preprocessing, where)


def preprocess(image: Image.Image, preprocessing: Preprocessing, where: str) -> Array:
    """A Pillow image as float32 model input: convert, resize, centre crop, normalise, lay out."""
    image = image.convert("L" if preprocessing.channels == "GRAY" else "RGB")
    size = _resized(image.size, preprocessing)
    if max(math.prod(size), math.prod(preprocessing.letterbox or (0,))) > _MOST_PIXELS:
        raise DataError(
            f"{where}: preprocessing makes {size[0]} x {size[1]} pixels of it; use a smaller resize"
        )
    if size != image.size:
        image = image.resize(size, _filter(preprocessing.interpolation))
    pixels = np.asarray(image, dtype=np.uint8).reshape(image.height, image.width, -1)
    return _normalise(_crop(_filled(pixels, preprocessing), preprocessing, where), preprocessing)


def _resized(size: tuple[int, int], preprocessing: Preprocessing) -> tuple[int, int]:
    """New (width, height); one length is that of the short side, the long side is rounded down."""
    resize = preprocessing.resize
    if preprocessing.letterbox is not None:
        height, width = preprocessing.letterbox
        ratio = min(width / size[0], height / size[1])
        return min(width, max(1, round(size[0] * ratio))), min(height, max(1, round(size[1] * ratio)))
    if resize is None:
        return size
    if isinstance(resize, tuple):
        return resize[1], resize[0]
    width, height = size
    if width <= height:
        return resize, max(1, height * resize // width)
    return max(1, width * resize // height), resize


def _filled(pixels: Array, preprocessing: Preprocessing) -> Array:
    """Pixels [H,W,C] at the top left of a letterbox; as they are where there is none."""
    if preprocessing.letterbox is None:
        return pixels
    filled = np.full((*preprocessing.letterbox, pixels.shape[2]), preprocessing.fill, np.float32)
    filled[: pixels.shape[0], : pixels.shape[1]] = pixels
    return filled


def _crop(pixels: Array, preprocessing: Preprocessing, where: str) -> Array:
    """The centre of [H,W,C]; an odd pixel is left over below and on the right."""
    if preprocessing.crop is None:
        return pixels
    (height, width), (crop_height, crop_width) = pixels.shape[:2], preprocessing.crop
    if height < crop_height or width < crop_width:
        raise DataError(
            f"{where}: {height} x {width} pixels, smaller than the crop {crop_height} x {crop_width}; "
            "set preprocessing.resize in the recipe"
        )
    top, left = (height - crop_height) // 2, (width - crop_width) // 2
    return pixels[top : top + crop_height, left : left + crop_width]


def _normalise(pixels: Array, preprocessing: Preprocessing) -> Array:
    """Pixels [H,W,C] in RGB order to float32 in the recipe's order and layout."""
    if preprocessing.channels == "BGR":
        pixels = pixels[:, :, ::-1]
    mean = np.asarray(preprocessing.mean, np.float32)
    std = np.asarray(preprocessing.std, np.float32)
    values = (pixels.astype(np.float32) * np.float32(preprocessing.scale) - mean) / std
    if preprocessing.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    result: Array = np.ascontiguousarray(values, np.float32)
    return result


def _filter(interpolation: str) -> Any:
    resampling = _pillow().Resampling
    return resampling.BICUBIC if interpolation == "bicubic" else resampling.BILINEAR


def _pillow() -> ModuleType:
    """PIL.Image, imported only where images are used."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise UsageError("images need Pillow: pip install 'qglow[images]'") from error
