"""The choices of a recipe as quantization reads them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from qglow.graph.graph import Node
from qglow.numerics.schema import Schema
from qglow.recipe.choices import Calibration
from qglow.recipe.rules import Rule
from qglow.recipe.schema import Recipe, pattern_fits

_DEFAULT = Recipe()


@dataclass(frozen=True, slots=True)
class QuantizationOptions:
    """A view of `Recipe`, which declares these choices and says what they mean.

    Four differ in form: schema is an enumeration, int8_io says whether io is "int8", smooth is a flag, and
    alpha is the exponent that the recipe gives in its smooth, or None.
    """

    schema: Schema = Schema(_DEFAULT.schema)
    calibration: Calibration = _DEFAULT.calibration
    per_tensor: bool = _DEFAULT.per_tensor
    keep_float: tuple[str, ...] = _DEFAULT.keep_float
    assert_all_quantized: bool = _DEFAULT.assert_all_quantized
    equalize: bool = _DEFAULT.equalize
    correct_bias: bool = _DEFAULT.correct_bias
    int8_io: bool = _DEFAULT.io == "int8"
    rules: tuple[Rule, ...] = _DEFAULT.rules
    strict: bool = _DEFAULT.strict
    smooth: bool = _DEFAULT.smooth is not False
    alpha: float | None = None if isinstance(_DEFAULT.smooth, bool) else _DEFAULT.smooth
    weight_range: str = _DEFAULT.weight_range
    split_channels: float = _DEFAULT.split_channels
    group_size: int = _DEFAULT.group_size

    @staticmethod
    def of(recipe: Recipe) -> QuantizationOptions:
        """The view of a recipe."""
        same: dict[str, Any] = {name: getattr(recipe, name) for name in _SAME}
        return QuantizationOptions(
            schema=Schema(recipe.schema),
            int8_io=recipe.io == "int8",
            smooth=recipe.smooth is not False,
            alpha=None if isinstance(recipe.smooth, bool) else recipe.smooth,
            **same,
        )

    def pattern_for(self, node: Node) -> str | None:
        """The first pattern of `keep_float` that matches this node; None if there is none."""
        return next((pattern for pattern in self.keep_float if self.fits(pattern, node)), None)

    @staticmethod
    def fits(pattern: str, node: Node) -> bool:
        """Whether a pattern matches this node, by its name, its operator or the name of a result."""
        names = [node.name, *(value.name for value in node.outputs)]
        return any(pattern_fits(pattern, name, node.operator.name) for name in names)


_OTHER_FORM = {"schema", "int8_io", "smooth", "alpha"}
_SAME = [item.name for item in dataclasses.fields(QuantizationOptions) if item.name not in _OTHER_FORM]
