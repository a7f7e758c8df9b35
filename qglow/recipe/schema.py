"""What a recipe can say. Every object here is valid once it exists: bad values raise ValueError."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from qglow.core.errors import UsageError
from qglow.recipe.choices import SCHEMAS, SECONDS, Calibration, one_of, parse_time
from qglow.recipe.rules import Rule

LAYOUTS = ("NCHW", "NHWC")
CHANNELS = {"RGB": 3, "BGR": 3, "GRAY": 1}
INTERPOLATIONS = ("bilinear", "bicubic")
IO_TYPES = ("float", "int8")
ACTIVATION_TYPES = ("uint8", "int8")
WEIGHT_RANGES = ("max", "mse")
ROUNDINGS = ("nearest", "gptq", "adaround")


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """From an image to a model input: resize, centre crop, order channels, normalise, lay out.

    `resize` is the length of the short side, or (height, width); `crop` is (height, width). `letterbox`
    takes the place of both: the whole image, as large as fits in (height, width), at the top left,
    the rest filled with pixels of the value `fill`.
    A pixel is 0..255 and becomes `(pixel * scale - mean) / std`; `mean` and `std` have one
    element, or one a channel in the order that `channels` names.
    """

    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"
    crop: tuple[int, int] | None = None
    letterbox: tuple[int, int] | None = None
    fill: float = 0.0
    layout: str = "NCHW"
    channels: str = "RGB"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        one_of(self.interpolation, INTERPOLATIONS, "interpolation")
        one_of(self.layout, LAYOUTS, "layout")
        one_of(self.channels, tuple(CHANNELS), "channels")
        sides = (self.resize,) if isinstance(self.resize, int) else self.resize or ()
        if any(side < 1 for side in (*sides, *(self.crop or ()), *(self.letterbox or ()))):
            raise ValueError("resize, crop and letterbox are sizes in pixels, at least 1")
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
    """Which array of a data file feeds which model input, where their names differ."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None

    def key(self, input_name: str) -> str:
        """The name in the data file of this model input."""
        return self.inputs.get(input_name, input_name)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a recipe file holds; a value that it leaves out has the default here.

    `keep_float` names what stays float32: a value's or node's name, `re:REGEX` for names,
    or `op:OPERATOR` for every node of an operator. A regular expression has to fit the whole name.
    `equalize` scales channels of results up and down again where that lets int8 lose less, `smooth` those of
    normalizations; a number for it is the exponent of SmoothQuant. `profile_again` takes histograms of
    what that scales over the calibration samples, where else ranges of channels serve. `correct_bias` takes
    the mean error of rounded weights out of biases, `io` is the element type of inputs and outputs.
    `rounding` of weights is to the "nearest" integer, or by "gptq" or "adaround", which look at the samples
    once more.
    `split_channels`: the share of channels that may be split where a few reach far beyond the others.
    `group_size`: inputs of a Gemm whose weights share a scale for each output; 0: all.
    `rounding_budget`: seconds that those two may take; None: as many as they need.
    `weight_range`: int8 reaches to the largest weight ("max"), or as far as their error is least ("mse").
    `activation_type` is that of integers in the exported QDQ model.
    `rules` hold for parts of the model, each over the ones before it; one that fits nothing is a
    warning, or an error where the recipe is `strict`.
    """

    preprocessing: Preprocessing | None = None
    data: DataMapping = DataMapping()
    schema: str = "asymmetric"
    calibration: Calibration = Calibration()
    per_tensor: bool = False
    keep_float: tuple[str, ...] = ()
    assert_all_quantized: bool = False
    equalize: bool = True
    correct_bias: bool = True
    io: str = "float"
    activation_type: str = "uint8"
    rounding: str = "nearest"
    rules: tuple[Rule, ...] = ()
    strict: bool = False
    smooth: bool | float = True
    weight_range: str = "max"
    rounding_budget: float | None = None
    split_channels: float = 0.0
    group_size: int = 0
    profile_again: bool = False

    def __post_init__(self) -> None:
        one_of(self.schema, SCHEMAS, "schema")
        one_of(self.io, IO_TYPES, "io")
        one_of(self.activation_type, ACTIVATION_TYPES, "activation_type")
        one_of(self.rounding, ROUNDINGS, "rounding")
        one_of(self.weight_range, WEIGHT_RANGES, "weight_range")
        if self.group_size < 0:
            raise ValueError(f"group_size {self.group_size}: a number of inputs, or 0 for no groups")
        if not 0.0 <= self.split_channels <= 1.0:
            raise ValueError(f"split_channels {self.split_channels:g}: a share of the channels, from 0 to 1")
        if self.rounding_budget is not None and not 0.0 <= self.rounding_budget < math.inf:
            raise ValueError(f"rounding_budget {self.rounding_budget:g}: a time, at least 0")
        if not isinstance(self.smooth, bool) and not 0.0 <= self.smooth <= 1.0:
            raise ValueError(f"smooth {self.smooth:g}: true, false or an exponent from 0 to 1")
        for pattern in self.keep_float:
            _check_pattern(pattern)

    def with_overrides(self, **values: Any) -> Recipe:
        """This recipe with the values that are not None, as options of the command line give them.

        `calibration` and `rounding_budget` ("10m") may be text; `keep_float` adds to what the recipe
        keeps. Raises UsageError.
        """
        changes = {name: value for name, value in values.items() if value is not None}
        try:
            if isinstance(changes.get("calibration"), str):
                changes["calibration"] = Calibration.parse(changes["calibration"])
            if isinstance(changes.get("rounding_budget"), str):
                changes["rounding_budget"] = _budget(changes["rounding_budget"])
            if "keep_float" in changes:
                added = tuple(changes["keep_float"])
                changes["keep_float"] = tuple(dict.fromkeys(self.keep_float + added))
            return dataclasses.replace(self, **changes)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def keeps_float(self, name: str, operator: str) -> str | None:
        """The first pattern of `keep_float` that fits a node (or value) of this name and operator."""
        return next((p for p in self.keep_float if pattern_fits(p, name, operator)), None)

    def to_yaml(self) -> str:
        """The effective recipe, defaults included; loading it gives an equal one."""
        document: dict[str, object] = {}
        if self.preprocessing is not None:
            section = dataclasses.asdict(self.preprocessing)
            document["preprocessing"] = {key: _plain(value) for key, value in section.items()}
        if self.data != DataMapping():
            document["data"] = {"inputs": dict(self.data.inputs), "label": self.data.label}
        document |= {
            "schema": self.schema,
            "calibration": str(self.calibration),
            "per_tensor": self.per_tensor,
            "keep_float": list(self.keep_float),
            "assert_all_quantized": self.assert_all_quantized,
            "equalize": self.equalize,
            "smooth": self.smooth,
            "group_size": self.group_size,
            "split_channels": self.split_channels,
            "profile_again": self.profile_again,
            "correct_bias": self.correct_bias,
            "io": self.io,
            "activation_type": self.activation_type,
            "rounding": self.rounding,
            "weight_range": self.weight_range,
            "rounding_budget": self.rounding_budget,
            "rules": [rule.to_document() for rule in self.rules],
            "strict": self.strict,
        }
        return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)


def _budget(text: str) -> float:
    try:
        return parse_time(text, SECONDS)
    except ValueError as error:
        raise ValueError(f"rounding_budget {error}") from error


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def pattern_fits(pattern: str, name: str, operator: str) -> bool:
    """Whether a pattern of `keep_float` means a node of this name and operator."""
    kind, colon, rest = pattern.partition(":")
    if colon and kind == "re":
        return re.fullmatch(rest, name) is not None
    if colon and kind == "op":
        return rest == operator
    return pattern == name


def _check_pattern(pattern: str) -> None:
    if not pattern:
        raise ValueError("keep_float: an empty name fits nothing")
    if not pattern.startswith("re:"):
        return
    try:
        re.compile(pattern[3:])
    except re.error as error:
        raise ValueError(f"keep_float {pattern!r}: not a regular expression: {error}") from error
