"""Rules of a recipe: what holds for some nodes and values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from qglow.core.options import option, to_document, validate
from qglow.recipe.choices import REQUANTIZATIONS, SCHEMAS, BlockFormat, Calibration
from qglow.recipe.matching import check_expression, fits, means
from qglow.recipe.readers import as_block_format, as_calibration, as_flag, as_text
from qglow.recipe.sections import section_of

HALVES = ("float16", "bfloat16")
DYNAMIC = "dynamic"
DTYPES = ("int8", "int16", "float", *HALVES, DYNAMIC)
GRANULARITIES = ("channel", "tensor")
ROLES = ("sum", "norm", "softmax", "scores", "mixture", "product", "heads", "gate", "stream")
"""Parts of a transformer, as regions of attention are divided."""
CORRECTIONS = ("equalize", "smooth", "split_channels", "correct_bias")
"""What a recipe does to lose less by int8, and a rule may leave out for some nodes."""


@dataclass(frozen=True, slots=True)
class Match:
    """Condition for the nodes that a rule is about; everything that is given has to hold.

    name: a regular expression that fits the whole name of a node, of its result, or of an input of the
    model, or such a name as it is. operator: the name of an operator. start, end ("from" and "to" in the
    file): names of values, or of nodes for their results; the nodes that depend on the one and that the other
    depends on. role: what nodes in a region of attention do there: "scores" are products of queries and keys,
    "mixture" those of shares and values. Raises ValueError if nothing is given, for a name that is not a
    regular expression, or an unknown role.

    >>> Match(name="layer[12]/.*").fits_name("layer1/conv"), Match(name="layer[12]").fits_name("layer1/conv")
    (True, False)
    >>> print(Match(operator="Gemm", start="hidden"))
    operator Gemm, from hidden
    """

    name: str | None = option(
        None, "Regular expression for the whole name of a node, its result or an input", read=as_text
    )
    operator: str | None = option(None, "Name of an operator", read=as_text)
    start: str | None = option(None, "Only nodes that depend on this value", key="from", read=as_text)
    end: str | None = option(None, "Only nodes that this value depends on", key="to", read=as_text)
    role: str | None = option(None, "What nodes do in a region of attention", read=as_text, choices=ROLES)

    def __post_init__(self) -> None:
        validate(self)
        if not any((self.name, self.operator, self.start, self.end, self.role)):
            raise ValueError("name, operator, role, from or to has to say what the rule is about")
        check_expression(self.name or "", f"name {self.name!r}")

    def fits_name(self, name: str) -> bool:
        """Whether the whole of `name` fits the expression, or is written like it; without one, it fits.

        >>> Match(name="conv[0]").fits_name("conv[0]"), Match(name="conv[0]").fits_name("conv0")
        (True, True)
        """
        return self.name is None or means(self.name, name) or fits(self.name, name)

    def to_document(self) -> dict[str, object]:
        """Plain data of the recipe file."""
        return to_document(self, skip=_is_none)

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.to_document().items())


@dataclass(frozen=True, slots=True)
class Rule:
    """Settings for the nodes and values that `match` fits; None leaves a setting as it was.

    dtype: "int8", "int16" (of results; weights stay int8), "float", or "float16" or "bfloat16": float, with
    weights and results of 16 bits, or "dynamic": products of rows with constant weights are int8 with scales
    of the rows that are measured while the model runs, other nodes float. schema and calibration are those of
    the nodes' results and, where a name fits, of inputs of the model; so is "int16". granularity: "channel"
    or "tensor", of the nodes' weights. weights: products of rows with constant weights are float, or those of
    dtype "dynamic", with weights of this format; other nodes are float. equalize, smooth, split_channels,
    correct_bias: False leaves that out for the nodes, where the recipe does it; True undoes an earlier rule.
    requantization: "float" or "fixed", of the nodes' int8 results and what data movement makes of them.
    Raises ValueError for values that are not allowed, and where nothing is set.

    >>> Rule(Match(operator="Gemm"), dtype="float").to_document()
    {'match': {'operator': 'Gemm'}, 'dtype': 'float'}
    """

    match: Match = option(help="Nodes and values that the rule applies to", nested=Match)
    dtype: str | None = option(None, "Type of the nodes' results", read=as_text, choices=DTYPES)
    schema: str | None = option(None, "How ranges of these values map to int8", read=as_text, choices=SCHEMAS)
    calibration: Calibration | None = option(
        None, "How ranges of these values are chosen", read=as_calibration, write=str
    )
    granularity: str | None = option(
        None,
        "Whether each output channel or the whole tensor has a weight scale",
        read=as_text,
        choices=GRANULARITIES,
    )
    weights: BlockFormat | None = option(
        None,
        "Format of weights in blocks, of float products or dynamic ones",
        read=as_block_format,
        write=str,
    )
    equalize: bool | None = option(
        None, "Whether channels of these nodes' results are balanced, if the recipe does that", read=as_flag
    )
    smooth: bool | None = option(
        None,
        "Whether outliers of these nodes' results move into weights, if the recipe does that",
        read=as_flag,
    )
    split_channels: bool | None = option(
        None, "Whether channels of these nodes' results are split, if the recipe does that", read=as_flag
    )
    correct_bias: bool | None = option(
        None, "Whether these nodes' biases are corrected, if the recipe does that", read=as_flag
    )

    requantization: str | None = option(
        None, "Arithmetic that brings sums to the int8 of these nodes", read=as_text, choices=REQUANTIZATIONS
    )

    def __post_init__(self) -> None:
        validate(self)
        choices = (
            self.dtype,
            self.schema,
            self.calibration,
            self.granularity,
            self.weights,
            self.requantization,
        )
        if not self.corrections and all(choice is None for choice in choices):
            raise ValueError(
                "it sets nothing; say dtype, keep_float, schema, calibration, granularity, weights, "
                "requantization, "
                f"{', '.join(CORRECTIONS[:-1])} or {CORRECTIONS[-1]}"
            )
        if self.weights is not None and self.dtype not in (None, "float", DYNAMIC):
            raise ValueError(
                f"weights {self.weights} go with float or dynamic activations; leave dtype {self.dtype} out"
            )

    @property
    def corrections(self) -> dict[str, bool]:
        """The corrections that it leaves out (False) or takes back in (True), by name."""
        stated = {name: getattr(self, name) for name in CORRECTIONS}
        return {name: wanted for name, wanted in stated.items() if wanted is not None}

    def to_document(self) -> dict[str, object]:
        """Plain data of the recipe file."""
        return to_document(self, skip=_is_none)


def read_rules(value: object) -> tuple[Rule, ...]:
    """Rules of a recipe file, a list of mappings. Raises ValueError that names the rule and the key."""
    if isinstance(value, tuple) and all(isinstance(rule, Rule) for rule in value):
        return value
    if not isinstance(value, list):
        raise ValueError(f"needs a list of rules, found {value!r}")
    rules = []
    for number, document in enumerate(value, start=1):
        rule = _RULE.build(document, f"rules {number}.")
        assert isinstance(rule, Rule)
        rules.append(rule)
    return tuple(rules)


def write_rules(rules: Iterable[Rule]) -> list[dict[str, object]]:
    """Rules as in the file."""
    return [rule.to_document() for rule in rules]


def _rule(keep_float: bool | None = None, **values: Any) -> Rule:
    """A rule of its keys; `keep_float` is another way to write a dtype."""
    if "match" not in values:
        raise ValueError("match has to say what the rule is about")
    if keep_float is not None:
        dtype = values.setdefault("dtype", "float" if keep_float else "int8")
        if (dtype == "float") is not keep_float:
            raise ValueError(f"keep_float: {str(keep_float).lower()} contradicts dtype: {values['dtype']}")
    return Rule(**values)


def _is_none(value: object) -> bool:
    return value is None


_RULE = section_of(Rule, _rule, keep_float=as_flag)
