"""The choices of a recipe as keywords of functions. scripts/write_keywords.py writes this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from qglow.recipe.choices import BlockFormat, Calibration


class RecipeChoices(TypedDict, total=False):
    """Choices of quantization that override a recipe's, each by its name; None leaves what the recipe has."""

    schema: str | None
    """How ranges map to int8: asymmetric, symmetric, symmetric_with_uint8, symmetric_with_power2_scale.
    asymmetric uses any zero point, so that all 256 levels cover the range as it is; symmetric has zero point
    0; symmetric_with_uint8 too, but spends all levels on values that are never negative;
    symmetric_with_power2_scale also rounds the scale up to a power of two. Weights are symmetric in any
    case."""

    scheme: str | None
    """What is int8 by kind of network: auto, cnn, transformer. cnn makes int8 whatever can be. transformer
    makes products with constant weights int8 and leaves residual sums, norms, attention and gates in float,
    unless a rule asks for int8. auto does the latter in attention blocks and what residual sums and norms
    connect to them, and the former elsewhere and with assert_all_quantized."""

    calibration: Calibration | str | None
    """How ranges are chosen: auto, minmax, kl, percentile:P, mse. minmax covers all that was seen. The others
    cut rare large values off, so that the rest gets finer steps: kl keeps the distribution closest, mse errs
    least in squares, percentile:99.99 leaves out what lies beyond. auto is kl for inputs of the model and mse
    for all other values."""

    per_tensor: bool | None
    """One scale for a whole weight tensor."""

    keep_float: Sequence[str] | str | None
    """Keep nodes in float, by name, re:REGEX or op:OPERATOR. A name is that of a node or of its result; a
    regular expression has to fit the whole name."""

    dynamic: bool | None
    """Linear layers with scales measured at run time. Products of rows with constant weights, the linear
    layers of a model, are int8; every row of their input (a token) gets a scale of its own. All other nodes
    stay float. Rules may choose something else for parts of the model, and so does `dtype: dynamic` of a
    rule."""

    weights: BlockFormat | str | None
    """Weights in blocks: int8, int4, int2. Products of rows with constant weights stay float, but their
    weights become integers with a scale and a zero point for every 32 of them along K; int4:64 says how many
    these are, and int4:64:symmetric that they have no zero points; :float16 behind it stores scales in 16
    bits. With `dynamic` every row of their input is int8 with a scale of its own. All other nodes stay float.
    Rules may choose something else for parts of the model, and have `weights` too."""

    assert_all_quantized: bool | None
    """Fail if any node would stay in float."""

    equalize: bool | None
    """Balance channels across layers so that int8 loses less. A channel is scaled up where it is made and
    down in the weights that read it, which changes nothing in float (cross-layer equalization)."""

    smooth: bool | float | None
    """Move outliers of normalized activations into weights (SmoothQuant). Like equalize, from a
    LayerNormalization into the Gemm behind it. A number is the exponent of SmoothQuant, taken everywhere: 0
    leaves activations as they are, 1 makes their channels equal."""

    group_size: int | None
    """Inputs of a Gemm that share a scale (0: all). A Gemm or MatMul over more inputs than this is cut into
    groups of this size, each with weight scales of its own: finer weights, and more time for each group."""

    split_channels: float | None
    """Share of outlier channels to split, such as 0.02. A channel that reaches far beyond the others becomes
    two of half the size, so that the others get finer steps (outlier channel splitting). It costs the time of
    the added channels."""

    profile_again: bool | None
    """Profile again after channels were balanced. What equalize, smooth and split_channels scale has no
    histogram any more. Without this, parameters follow from the ranges of its channels in the profile."""

    correct_bias: bool | None
    """Correct biases for rounded weights."""

    io: str | None
    """Type of the model's inputs and outputs: float, int8. int8 leaves out the conversion of inputs and
    outputs."""

    states: Mapping[str, str] | Sequence[str] | None
    """State that one call hands to the next. The verdict then looks at a stream of the samples too. With `io:
    int8` the two have one scale and zero point, so that programs and bundles can keep the state in int8."""

    activation_type: str | None
    """Type of activations in model.qdq.onnx: uint8, int8. onnxruntime on x86 is fast with uint8; other
    runtimes want int8."""

    rounding: str | None
    """Rounding of weights: nearest, gptq, adaround, hqq, awq, awq-gptq. nearest takes the nearest step. gptq
    rounds weights one after the other, each making up for the errors before it; adaround goes on from there
    and learns which to round the other way. hqq fits the scales of weights in blocks once more, without
    samples. awq scales inputs of weights in blocks, so that weights of large inputs are rounded finer, and
    then takes the nearest step or, as awq-gptq, rounds by gptq. All others look at the calibration
    samples."""

    weight_range: str | None
    """Range of weights, by largest or least error: max, mse. max spans the largest weight of a channel; mse
    clips the largest ones where the squared error of all is less."""

    requantization: str | None
    """Arithmetic that brings sums to int8: float, fixed. float multiplies in float32, as ONNX means it; fixed
    takes the fixed point of gemmlowp and CMSIS-NN, which is quicker on processors without a float unit.
    Results differ by one step now and then. model.qdq.onnx states either exactly."""

    rounding_budget: float | str | None
    """Start no layer after this time: 90s, 10m, 1h. Layers left when the time is up keep what they have, and
    the report names them. A number is in seconds."""

    strict: bool | None
    """Fail where there would be a warning. These are a rule that fits nothing and a verdict that is not good.
    In Python a verdict is held to it by `ModelVerdict.require`."""
