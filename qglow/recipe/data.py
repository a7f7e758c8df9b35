"""Settings of data in a recipe: how images become model inputs, and which arrays of files are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from qglow.core.options import Bounds, option, validate
from qglow.recipe.readers import (
    as_count,
    as_names,
    as_number,
    as_numbers,
    as_resize,
    as_sides,
    as_text,
    optional,
)

_LONGEST_SIDE = 2**15
LAYOUTS = ("NCHW", "NHWC")
CHANNELS = {"RGB": 3, "BGR": 3, "GRAY": 1}
INTERPOLATIONS = ("bilinear", "bicubic")
KEPT = 32
"""Samples that a profile keeps by default: so many tell calibrations apart that are 1 dB apart."""
MOST_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Steps from an image to a model input: resize, centre crop, order channels, normalise, lay out.

    A pixel is 0..255 and becomes `(pixel * scale - mean) / std`. `letterbox` takes the place of `resize`
    and `crop`: the whole image, as large as fits, at the top left, the rest filled with `fill`.
    Raises ValueError for values that do not go together.
    """

    resize: int | tuple[int, int] | None = option(
        None, "Size to resize to, in pixels: the short side, or [height, width]", read=optional(as_resize)
    )
    interpolation: str = option("bilinear", "How images are resized", read=as_text, choices=INTERPOLATIONS)
    crop: tuple[int, int] | None = option(
        None, "Size of the centre crop in pixels: one number, or [height, width]", read=optional(as_sides)
    )
    letterbox: tuple[int, int] | None = option(
        None,
        "Size in pixels to fit the whole image into: one number, or [height, width]",
        read=optional(as_sides),
    )
    fill: float = option(0.0, "Pixel value (0 to 255) around the image in a letterbox", read=as_number)
    layout: str = option("NCHW", "Order of the axes of the model's input", read=as_text, choices=LAYOUTS)
    channels: str = option("RGB", "Order of the channels", read=as_text, choices=tuple(CHANNELS))
    scale: float = option(1.0, "Factor of pixel values (0 to 255), such as 1/255", read=as_number)
    mean: tuple[float, ...] = option(
        (0.0,), "Mean to subtract from scaled pixels: one number, or one per channel", read=as_numbers
    )
    std: tuple[float, ...] = option(
        (1.0,), "Standard deviation to divide by: one number, or one per channel", read=as_numbers
    )

    def __post_init__(self) -> None:
        validate(self)
        sides = (self.resize,) if isinstance(self.resize, int) else self.resize or ()
        if any(side < 1 for side in (*sides, *(self.crop or ()), *(self.letterbox or ()))):
            raise ValueError("resize, crop and letterbox are sizes in pixels, at least 1")
        if any(side > _LONGEST_SIDE for side in (*sides, *(self.crop or ()), *(self.letterbox or ()))):
            raise ValueError(f"resize, crop and letterbox are sizes in pixels, at most {_LONGEST_SIDE}")
        if self.letterbox is not None and (self.resize or self.crop):
            raise ValueError("letterbox takes the place of resize and crop; leave them out")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, CHANNELS[self.channels]):
                raise ValueError(f"{name} has {len(values)} values, not 1 or one for each of {self.channels}")
        if not all(math.isfinite(value) for value in (self.scale, self.fill, *self.mean, *self.std)):
            raise ValueError("scale, fill, mean and std are finite numbers")
        if 0.0 in self.std:
            raise ValueError("std divides, so it cannot be 0")


@dataclass(frozen=True, slots=True)
class DataMapping:
    """Names of the arrays of a data file that feed model inputs, if they differ from the inputs' names, and
    what its labels mean."""

    inputs: Mapping[str, str] = option(
        dict, "Names of arrays in the data files, by name of the model's input", read=as_names
    )
    label: str | None = option(None, "Name of the array that holds labels", read=optional(as_text))
    ignore_label: int | None = option(
        None,
        "Class of positions that do not count, besides negative labels",
        read=optional(as_count),
        bounds=Bounds(0),
        expected="a class number",
    )

    def key(self, input_name: str) -> str:
        """The name of a model input's array in the data file.

        >>> names = DataMapping({"input": "images"})
        >>> names.key("input"), names.key("mask")
        ('images', 'mask')
        """
        return self.inputs.get(input_name, input_name)
