"""What a user may choose about quantization."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.graph.graph import Node
from qglow.numerics.schema import Schema
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Rule
from qglow.recipe.schema import Recipe, pattern_fits


@dataclass(frozen=True, slots=True)
class QuantizationOptions:
    """Schema, calibration, granularity and precision, each independent of the others.

    `keep_float` names what stays float32: the name of a node or of its result, `re:REGEX` for
    either, `op:OPERATOR`. `equalize` scales the channels of results where that lets int8 lose less,
    `smooth` those of normalizations (`alpha`: with this exponent of SmoothQuant), `correct_bias` takes the
    mean error of rounded weights out of the bias, `weight_range` "mse" cuts off weights where
    all of them then have less error, `split_channels` is the share of channels that may be
    split, `group_size` how many inputs of a Gemm have one scale of weights (0: all).
    `rules` hold for parts of the graph, each over the ones
    before it; `strict` makes one that fits nothing an error.
    """

    schema: Schema = Schema.asymmetric
    calibration: Calibration = Calibration()
    per_tensor: bool = False
    keep_float: tuple[str, ...] = ()
    assert_all_quantized: bool = False
    equalize: bool = True
    correct_bias: bool = True
    int8_io: bool = False
    rules: tuple[Rule, ...] = ()
    strict: bool = False
    smooth: bool = True
    alpha: float | None = None
    weight_range: str = "max"
    split_channels: float = 0.0
    group_size: int = 0

    @staticmethod
    def of(recipe: Recipe) -> QuantizationOptions:
        """The choices of a recipe."""
        return QuantizationOptions(
            Schema(recipe.schema),
            recipe.calibration,
            recipe.per_tensor,
            recipe.keep_float,
            recipe.assert_all_quantized,
            recipe.equalize,
            recipe.correct_bias,
            recipe.io == "int8",
            recipe.rules,
            recipe.strict,
            recipe.smooth is not False,
            None if isinstance(recipe.smooth, bool) else recipe.smooth,
            recipe.weight_range,
            recipe.split_channels,
            recipe.group_size,
        )

    def pattern_for(self, node: Node) -> str | None:
        """The first pattern of `keep_float` that means this node."""
        return next((pattern for pattern in self.keep_float if self.fits(pattern, node)), None)

    @staticmethod
    def fits(pattern: str, node: Node) -> bool:
        """Whether a pattern means this node, by its name, its result's or its operator's."""
        names = [node.name, *(value.name for value in node.outputs)]
        return any(pattern_fits(pattern, name, node.operator.name) for name in names)
