"""Recipes and their settings. Every object here is valid once it exists: bad values raise ValueError."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qglow.core.errors import UsageError
from qglow.core.keywords import unknown_keyword
from qglow.core.options import Bounds, FieldError, option, options_of, read_value, to_document, validate
from qglow.recipe.choices import CALIBRATION_FORMS, REQUANTIZATIONS, SCHEMAS, BlockFormat, Calibration
from qglow.recipe.data import DataMapping, Preprocessing
from qglow.recipe.matching import check_expression, fits, means
from qglow.recipe.readers import (
    as_block_format,
    as_calibration,
    as_count,
    as_flag,
    as_number,
    as_seconds,
    as_smoothing,
    as_states,
    as_text,
    as_texts,
    optional,
)
from qglow.recipe.rules import Rule, read_rules, write_rules

IO_TYPES = ("float", "int8")
ACTIVATION_TYPES = ("uint8", "int8")
WEIGHT_RANGES = ("max", "mse")
SCHEMES = ("auto", "cnn", "transformer")
ROUNDINGS = ("nearest", "gptq", "adaround", "hqq", "awq", "awq-gptq")

SCALES = "Ranges and scales"
FLOAT = "What stays float"
ACCURACY = "Accuracy"
ROUNDING = "Rounding of weights"
OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a recipe file holds; a value that it leaves out has the default here.

    Raises ValueError for values that are not allowed.
    """

    preprocessing: Preprocessing | None = option(
        None, "How images become model inputs", nested=Preprocessing, only_in_files=True
    )
    data: DataMapping = option(
        DataMapping(), "Names of arrays in data files", nested=DataMapping, only_in_files=True
    )
    schema: str = option(
        "asymmetric",
        "How ranges map to int8",
        group=SCALES,
        read=as_text,
        choices=SCHEMAS,
        more=(
            "asymmetric uses any zero point, so that all 256 levels cover the range as it is; "
            "symmetric has zero point 0; symmetric_with_uint8 too, but spends all levels on "
            "values that are never negative; symmetric_with_power2_scale also rounds the scale up "
            "to a power of two. Weights are symmetric in any case."
        ),
    )
    scheme: str = option(
        "auto",
        "What is int8 by kind of network",
        kw_only=True,
        group=FLOAT,
        read=as_text,
        choices=SCHEMES,
        more=(
            "cnn makes int8 whatever can be. transformer makes products with constant weights int8 and "
            "leaves residual sums, norms, attention and gates in float, unless a rule asks for int8. auto "
            "does the latter in attention blocks and what residual sums and norms connect to them, and the "
            "former elsewhere and with assert_all_quantized."
        ),
    )
    calibration: Calibration = option(
        Calibration(),
        f"How ranges are chosen: {', '.join(CALIBRATION_FORMS)}",
        group=SCALES,
        metavar="METHOD",
        read=as_calibration,
        write=Calibration.to_text,
        typed=str,
        keyword="Calibration | str",
        more=(
            "minmax covers all that was seen. The others cut rare large values off, so that the "
            "rest gets finer steps: kl keeps the distribution closest, mse errs least in squares, "
            "percentile:99.99 leaves out what lies beyond. auto is kl for inputs of the model and "
            "mse for all other values."
        ),
    )
    per_tensor: bool = option(False, "One scale for a whole weight tensor", group=SCALES, read=as_flag)
    keep_float: tuple[str, ...] = option(
        (),
        "Keep nodes in float, by name, re:REGEX or op:OPERATOR",
        group=FLOAT,
        metavar="NODE",
        read=as_texts,
        typed=list[str],
        keyword="Sequence[str] | str",
        more="A name is that of a node or of its result; a regular expression has to fit the whole name.",
    )
    dynamic: bool = option(
        False,
        "Linear layers with scales measured at run time",
        kw_only=True,
        group=SCALES,
        read=as_flag,
        more=(
            "Products of rows with constant weights, the linear layers of a model, are int8; every row of "
            "their input (a token) gets a scale of its own. All other nodes stay float. Rules may choose "
            "something else for parts of the model, and so does `dtype: dynamic` of a rule."
        ),
    )
    weights: BlockFormat | None = option(
        None,
        "Weights in blocks: int8, int4, int2",
        kw_only=True,
        group=SCALES,
        metavar="FORMAT",
        read=optional(as_block_format),
        write=lambda value: None if value is None else str(value),
        typed=str,
        keyword="BlockFormat | str",
        more=(
            "Products of rows with constant weights stay float, but their weights become integers with a "
            "scale and a zero point for every 32 of them along K; int4:64 says how many these are, and "
            "int4:64:symmetric that they have no zero points; :float16 behind it stores scales in 16 bits. "
            "With `dynamic` every row of their input is int8 with a scale of its own. All other nodes stay "
            "float. Rules may choose something else for parts of the model, and have `weights` too."
        ),
    )
    assert_all_quantized: bool = option(
        False, "Fail if any node would stay in float", group=FLOAT, read=as_flag
    )
    equalize: bool = option(
        True,
        "Balance channels across layers so that int8 loses less",
        group=ACCURACY,
        negative="--no-equalize",
        read=as_flag,
        more=(
            "A channel is scaled up where it is made and down in the weights that read it, which "
            "changes nothing in float (cross-layer equalization)."
        ),
    )
    smooth: bool | float = option(
        True,
        "Move outliers of normalized activations into weights (SmoothQuant)",
        kw_only=True,
        group=ACCURACY,
        metavar="true|false|ALPHA",
        read=as_smoothing,
        typed=str,
        bounds=Bounds(0.0, 1.0),
        expected="true, false or an exponent from 0 to 1",
        more=(
            "Like equalize, from a LayerNormalization into the Gemm behind it. A number is the "
            "exponent of SmoothQuant, taken everywhere: 0 leaves activations as they are, 1 makes "
            "their channels equal."
        ),
    )
    group_size: int = option(
        0,
        "Inputs of a Gemm that share a scale (0: all)",
        kw_only=True,
        group=SCALES,
        metavar="N",
        read=as_count,
        bounds=Bounds(0),
        expected="a number of inputs, or 0 for no groups",
        more=(
            "A Gemm or MatMul over more inputs than this is cut into groups of this size, each with "
            "weight scales of its own: finer weights, and more time for each group."
        ),
    )
    split_channels: float = option(
        0.0,
        "Share of outlier channels to split, such as 0.02",
        kw_only=True,
        group=ACCURACY,
        metavar="SHARE",
        read=as_number,
        bounds=Bounds(0.0, 1.0),
        expected="a share of the channels, from 0 to 1",
        more=(
            "A channel that reaches far beyond the others becomes two of half the size, so that "
            "the others get finer steps (outlier channel splitting). It costs the time of the "
            "added channels."
        ),
    )
    profile_again: bool = option(
        False,
        "Profile again after channels were balanced",
        kw_only=True,
        group=ACCURACY,
        negative="--no-profile-again",
        read=as_flag,
        more=(
            "What equalize, smooth and split_channels scale has no histogram any more. Without "
            "this, parameters follow from the ranges of its channels in the profile."
        ),
    )
    correct_bias: bool = option(
        True,
        "Correct biases for rounded weights",
        group=ACCURACY,
        negative="--no-correct-bias",
        read=as_flag,
    )
    io: str = option(
        "float",
        "Type of the model's inputs and outputs",
        group=FLOAT,
        read=as_text,
        choices=IO_TYPES,
        more="int8 leaves out the conversion of inputs and outputs.",
    )
    states: tuple[tuple[str, str], ...] = option(
        (),
        "State that one call hands to the next",
        kw_only=True,
        group=FLOAT,
        metavar="INPUT=OUTPUT",
        flags=("--state",),
        read=as_states,
        write=dict,
        typed=list[str],
        keyword="Mapping[str, str] | Sequence[str]",
        more=(
            "The verdict then looks at a stream of the samples too. With `io: int8` the two have one scale "
            "and zero point, so that programs and bundles can keep the state in int8."
        ),
    )
    activation_type: str = option(
        "uint8",
        "Type of activations in model.qdq.onnx",
        group=OUTPUT,
        read=as_text,
        choices=ACTIVATION_TYPES,
        more="onnxruntime on x86 is fast with uint8; other runtimes want int8.",
    )
    rounding: str = option(
        "nearest",
        "Rounding of weights",
        group=ROUNDING,
        read=as_text,
        choices=ROUNDINGS,
        more=(
            "nearest takes the nearest step. gptq rounds weights one after the other, each making "
            "up for the errors before it; adaround goes on from there and learns which to round "
            "the other way. hqq fits the scales of weights in blocks once more, without samples. awq "
            "scales inputs of weights in blocks, so that weights of large inputs are rounded finer, and "
            "then takes the nearest step or, as awq-gptq, rounds by gptq. All others look at the "
            "calibration samples."
        ),
    )
    weight_range: str = option(
        "max",
        "Range of weights, by largest or least error",
        kw_only=True,
        group=SCALES,
        read=as_text,
        choices=WEIGHT_RANGES,
        more=(
            "max spans the largest weight of a channel; mse clips the largest ones where the "
            "squared error of all is less."
        ),
    )
    requantization: str = option(
        "float",
        "Arithmetic that brings sums to int8",
        kw_only=True,
        group=SCALES,
        read=as_text,
        choices=REQUANTIZATIONS,
        more=(
            "float multiplies in float32, as ONNX means it; fixed takes the fixed point of gemmlowp and "
            "CMSIS-NN, which is quicker on processors without a float unit. Results differ by one step now "
            "and then. model.qdq.onnx states either exactly."
        ),
    )
    rounding_budget: float | None = option(
        None,
        "Start no layer after this time: 90s, 10m, 1h",
        kw_only=True,
        group=ROUNDING,
        metavar="TIME",
        read=optional(as_seconds),
        typed=str,
        keyword="float | str",
        bounds=Bounds(0.0, math.nextafter(math.inf, 0.0)),
        expected="a time, at least 0",
        more=(
            "Layers left when the time is up keep what they have, and the report names them. A "
            "number is in seconds."
        ),
    )
    rules: tuple[Rule, ...] = option(
        (), "Choices for parts of the model; later rules override earlier ones",
        read=read_rules, write=write_rules, only_in_files=True,
    )  # fmt: skip
    strict: bool = option(
        False,
        "Fail where there would be a warning",
        group=FLOAT,
        read=as_flag,
        more="These are a rule that fits nothing and a verdict that is not good. In Python a verdict is held "
        "to it by `ModelVerdict.require`.",
    )

    def __post_init__(self) -> None:
        validate(self)
        for pattern in self.keep_float:
            _check_pattern(pattern)

    def with_overrides(self, **values: Any) -> Recipe:
        """This recipe with the values that are not None, as keywords and the command line give them.

        Values are those that a recipe file may have, so `rounding_budget` may be "10m"; `keep_float` adds
        to what the recipe keeps. Raises UsageError for a value that is not allowed, and for an unknown name
        one that is a TypeError too.

        >>> Recipe(keep_float=("op:Gemm",)).with_overrides(keep_float="fc").keep_float
        ('op:Gemm', 'fc')
        >>> Recipe().with_overrides(calibration="mse").calibration
        Calibration(method='mse', percent=None)
        """
        declared = {item.name: item for item in options_of(Recipe)}
        for name in values:
            if name not in declared:
                raise unknown_keyword(name, "is no choice of quantization", tuple(declared))
        given = {name: value for name, value in values.items() if value is not None}
        try:
            if "keep_float" in given:
                given["keep_float"] = self._kept_with(given["keep_float"])
            changes = {name: read_value(declared[name], value) for name, value in given.items()}
            return dataclasses.replace(self, **changes)
        except FieldError as error:
            raise UsageError(str(error), field=error.field) from error
        except ValueError as error:
            raise UsageError(str(error)) from error

    def keeps_float(self, names: Sequence[str], operator: str) -> str | None:
        """The first pattern of `keep_float` that fits a node of this operator with one of these names."""
        return next((pattern for pattern in self.keep_float if pattern_fits(pattern, names, operator)), None)

    def to_yaml(self) -> str:
        """The effective recipe, defaults included; loading it gives an equal one."""
        import yaml  # here, because the command line reads options and their help without it

        return yaml.safe_dump(to_document(self), sort_keys=False, default_flow_style=None, width=110)

    def _kept_with(self, patterns: Any) -> list[str]:
        added = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        return list(dict.fromkeys(self.keep_float + added))


def pattern_fits(pattern: str, names: Sequence[str], operator: str) -> bool:
    """Whether a pattern of `keep_float` means a node of this operator with one of these names.

    >>> pattern_fits("op:Gemm", ["fc"], "Gemm"), pattern_fits("re:layer[12]", ["layer3"], "MatMul")
    (True, False)

    A name may be written as reports print it. What looks like a pattern and is a node's name means that
    node too.
    """
    kind, colon, rest = pattern.partition(":")
    if any(means(pattern, name) for name in names):
        return True
    if colon and kind == "re":
        return any(fits(rest, name) for name in names)
    return bool(colon) and kind == "op" and rest == operator


def _check_pattern(pattern: str) -> None:
    if not pattern:
        raise FieldError("keep_float", ": an empty name fits nothing")
    if not pattern.startswith("re:"):
        return
    try:
        check_expression(pattern[3:], f" {pattern!r}")
    except ValueError as error:
        raise FieldError("keep_float", str(error)) from error
