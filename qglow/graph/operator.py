"""Operators: attributes, inference of shapes and types, semantics, traits, and form after quantization.

Each operator is one frozen dataclass whose fields are its attributes. The same class stands for the float
and the int8 form; the types of the values say which.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from qglow.core.types import Array, TensorType
from qglow.graph.traits import Traits
from qglow.numerics.half import widen
from qglow.numerics.quantize import dequantize_by, quantize_by
from qglow.numerics.scalar.cells import RecurrentCell


class OperatorTypeError(Exception):
    """Input types or attributes do not fit an operator; callers add the node's name."""


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Products of int8 activations and weights, summed in int32, rescaled once. Fields name the operands."""

    x: str = "x"
    w: str = "w"
    bias: str = "bias"


@dataclass(frozen=True, slots=True)
class Products:
    """Products of two int8 activations, one scale each, summed in int32, rescaled once or given in float."""


@dataclass(frozen=True, slots=True)
class Recur:
    """Products of int8 states and weights in each of its steps, summed in int32 and given in float.

    Fields name the operands: the first states, which have the parameters of the first result, the weights,
    with a scale for each column, and what is carried from step to step in float, of which the second result
    has the last. The other operands and results are float.
    """

    state: str = "hidden"
    w: str = "w"
    carried: str = "carried"


@dataclass(frozen=True, slots=True)
class SameAs:
    """The output takes the parameters of one input: data movement and selections."""

    operand: int = 0


@dataclass(frozen=True, slots=True)
class Unify:
    """Inputs and output share parameters where that costs each input less than 1 dB.

    `rescales`: where they do not, the int8 form itself takes operands with parameters of their own.
    """

    rescales: bool = False


@dataclass(frozen=True, slots=True)
class Rescaled:
    """Elementwise int8 arithmetic; the output has parameters of its own."""


@dataclass(frozen=True, slots=True)
class Table:
    """A look-up table of 256 entries, computed by the float64 reference."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Parameters of an output range that is known in advance."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class ReadsIntegers:
    """Takes int8 operands as they are, without a conversion, and gives no reals."""


@dataclass(frozen=True, slots=True)
class KeepFloat:
    """Stays float; the reason reaches the report.

    scaled_by: an optional operand, the scales of rows, beside which its x are integers of rows, or "".
    """

    reason: str
    scaled_by: str = ""


class RunRegion(Protocol):
    """Computes the outputs of a graph, in their order, from its inputs in theirs."""

    def __call__(self, region: Any, inputs: Sequence[Array]) -> list[Array]:
        """The outputs."""


Policy = Accumulate | Products | Recur | SameAs | Unify | Rescaled | Table | Fixed | ReadsIntegers | KeepFloat


@dataclass(frozen=True)
class Operator(Traits, ABC):
    """Base of all operators; see `Traits` for what passes ask beyond types, meaning and policy.

    `operands` names the inputs in order; a name that ends in `?` is optional, one that ends
    in `*` stands for one or more, in `*?` for any number, and is the last. `policy` says how quantization
    treats it; `fixed` gives the parameters of a result whose range is known in advance; `plain_operands`
    are those that its int8 form takes as they are: factors in float, conditions, indices. `region_names`
    are the fields that hold graphs, which the operator runs.

    Float attributes are rounded to float32 when an operator is made, so that text restores them.
    """

    name: ClassVar[str]
    operands: ClassVar[tuple[str, ...]]
    policy: ClassVar[Policy]
    commutative: ClassVar[bool] = False
    fixed: ClassVar[Fixed | None] = None
    plain_operands: ClassVar[tuple[str, ...]] = ()
    region_names: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.type == "float":
                object.__setattr__(self, field.name, float(np.float32(getattr(self, field.name))))

    def place_of(self, name: str) -> int:
        """Place of the operand of this declared name. Raises KeyError for another one."""
        for place, declared in enumerate(self.operands):
            if declared.rstrip("?*") == name:
                return place
        raise KeyError(f"{self.name} declares no operand {name}")

    @abstractmethod
    def infer(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """Output types of the float form. Raises OperatorTypeError.

        Only the shapes of quantized inputs count. The outputs then have the float element type, which
        quantization replaces.
        """

    @abstractmethod
    def evaluate(self, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """Compute the float (or plain integer) results in numpy."""

    def evaluate_constants(self, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """Compute results that become constants of a model, with the same bits on every machine.

        Operators whose `evaluate` adds in an order of numpy's choice override it.
        """
        return self.evaluate(inputs)

    def evaluate_types(self, inputs: Sequence[TensorType | None]) -> tuple[Array, ...] | None:
        """Results that the types of the operands determine without data; None if they do not."""
        return None

    def evaluate_quantized(
        self,
        inputs: Sequence[Array | None],
        input_types: Sequence[TensorType | None],
        output_types: Sequence[TensorType],
    ) -> tuple[Array, ...]:
        """Compute results where some type is quantized: dequantize, evaluate, quantize.

        Operators with integer arithmetic of their own override it.
        """
        reals = [_to_float(a, t) for a, t in zip(inputs, input_types, strict=True)]
        results = self.evaluate(reals)
        return tuple(_from_float(a, t) for a, t in zip(results, output_types, strict=True))

    def run(
        self,
        inputs: Sequence[Array | None],
        input_types: Sequence[TensorType | None],
        output_types: Sequence[TensorType],
        constants: bool = False,
    ) -> tuple[Array, ...]:
        """Evaluate the float or the quantized form, as types ask; 16-bit floats are widened to float32.

        constants: whether results become constants of a model.
        """
        inputs = [
            a if a is None or t is None or not t.is_half else widen(a)
            for a, t in zip(inputs, input_types, strict=True)
        ]
        types = [*input_types, *output_types]
        if any(t is not None and t.is_quantized for t in types):
            return self.evaluate_quantized(inputs, input_types, output_types)
        return self.evaluate_constants(inputs) if constants else self.evaluate(inputs)

    @property
    def regions(self) -> tuple[Any, ...]:
        """The graphs that it runs, in the order of `region_names`."""
        return tuple(getattr(self, name) for name in self.region_names)

    @property
    def usual_rounds(self) -> int:
        """Number of runs of a region, as estimates count it."""
        return 1

    @property
    def carried_results(self) -> Sequence[int]:
        """Places of those results of its region that the region takes again, round after round."""
        return ()

    def with_regions(self, regions: Sequence[Any]) -> Self:
        """The operator with these graphs in place of its own."""
        return dataclasses.replace(self, **dict(zip(self.region_names, regions, strict=True)))

    def run_regions(self, inputs: Sequence[Array | None], run: RunRegion) -> tuple[Array, ...]:
        """Compute the results of an operator with regions; `run` computes those of a region."""
        raise NotImplementedError(f"{self.name} has no regions")

    @property
    def accumulate(self) -> Accumulate | None:
        """Names of its operands if it sums products with weights in int32; else None."""
        return self.policy if isinstance(self.policy, Accumulate) else None

    @property
    def multiplies_activations(self) -> bool:
        """Whether its int8 form sums products of two activations in int32."""
        return isinstance(self.policy, Products)

    @property
    def recurs(self) -> Recur | None:
        """Names of its operands if it multiplies its own states with weights; else None."""
        return self.policy if isinstance(self.policy, Recur) else None

    @property
    def recurrent_cell(self) -> RecurrentCell | None:
        """Settings of its cells if it multiplies its own states with weights; else None."""
        return None

    @property
    def sums_products(self) -> bool:
        """Whether its int8 form has exact int32 sums, which it can give in float without a conversion."""
        return isinstance(self.policy, Accumulate | Products)

    @property
    def kept_operand(self) -> int | None:
        """Index of the operand whose parameters its result keeps, whatever they are."""
        return self.policy.operand if isinstance(self.policy, SameAs) else None

    @property
    def shares_parameters(self) -> bool:
        """Whether all its operands and its result must have the same parameters in int8."""
        return isinstance(self.policy, Unify) and not self.policy.rescales

    @property
    def unifies(self) -> bool:
        """Whether its operands and its result have the same parameters where that costs little."""
        return isinstance(self.policy, Unify)

    @property
    def passes_integers_on(self) -> bool:
        """Whether its result holds integers of its operands where all have the same parameters."""
        return isinstance(self.policy, SameAs | Unify)

    @property
    def is_tabulated(self) -> bool:
        """Whether its int8 form is a table of 256 entries."""
        return isinstance(self.policy, Table)

    @property
    def reads_integers(self) -> bool:
        """Whether it takes int8 operands as they are and gives no reals."""
        return isinstance(self.policy, ReadsIntegers)

    @property
    def is_light(self) -> bool:
        """Whether its int8 form does a few operations for each element and sums no products."""
        return isinstance(self.policy, Rescaled | Table | Unify | SameAs)

    def reference64(self, x: Array) -> Array:
        """float64 reference of a one-input elementwise operator, for tables (policy Table)."""
        raise NotImplementedError(f"{self.name} has no table")


def _to_float(array: Array | None, kind: TensorType | None) -> Array | None:
    if array is None or kind is None or kind.quantization is None:
        return array
    return dequantize_by(array, kind.quantization)


def _from_float(array: Array, kind: TensorType) -> Array:
    if kind.quantization is None:
        return np.asarray(array, kind.element.dtype)
    return quantize_by(array, kind.quantization)


OPERATORS: dict[str, type[Operator]] = {}


def register(cls: type[Operator]) -> type[Operator]:
    """Class decorator: make an operator known by its name to text and importers."""
    if cls.name in OPERATORS:
        raise ValueError(f"operator {cls.name} is declared twice")
    OPERATORS[cls.name] = cls
    return cls


def require(condition: bool, message: str) -> None:
    """Raise OperatorTypeError(message) unless `condition`."""
    if not condition:
        raise OperatorTypeError(message)
