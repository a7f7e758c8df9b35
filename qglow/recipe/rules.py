"""Rules of a recipe: what holds for some nodes and values only."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qglow.recipe.choices import SCHEMAS, Calibration, one_of

HALVES = ("float16", "bfloat16")
DTYPES = ("int8", "int16", "float", *HALVES)
GRANULARITIES = ("channel", "tensor")


@dataclass(frozen=True, slots=True)
class Match:
    """Which nodes a rule is about; everything that is given has to hold.

    name: a regular expression that fits the whole name of a node, of its result, or of an input of the
    model. operator: the name of an operator. start, end ("from" and "to" in the file): names of values;
    the nodes that depend on the one and that the other depends on.
    """

    name: str | None = None
    operator: str | None = None
    start: str | None = None
    end: str | None = None

    def __post_init__(self) -> None:
        if not any((self.name, self.operator, self.start, self.end)):
            raise ValueError("name, operator, from or to has to say what the rule is about")
        try:
            re.compile(self.name or "")
        except re.error as error:
            raise ValueError(f"name {self.name!r}: not a regular expression: {error}") from error

    def fits_name(self, name: str) -> bool:
        """Whether `name` is one that the rule is about; so is every one where it says nothing of names."""
        return self.name is None or re.fullmatch(self.name, name) is not None

    def to_document(self) -> dict[str, str]:
        """As in the file."""
        keys = {"name": self.name, "operator": self.operator, "from": self.start, "to": self.end}
        return {key: value for key, value in keys.items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.to_document().items())


@dataclass(frozen=True, slots=True)
class Rule:
    """What holds where `match` fits; what is None is left as it was.

    dtype: "int8", "int16" (of results; weights stay int8), "float", or "float16" or "bfloat16": float, with
    weights and results of 16 bits. schema and calibration are those of the nodes' results and, where a name
    fits, of inputs of the model; so is "int16". granularity: "channel" or "tensor", of the nodes' weights.
    """

    match: Match
    dtype: str | None = None
    schema: str | None = None
    calibration: Calibration | None = None
    granularity: str | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None:
            one_of(self.dtype, DTYPES, "dtype")
        if self.schema is not None:
            one_of(self.schema, SCHEMAS, "schema")
        if self.granularity is not None:
            one_of(self.granularity, GRANULARITIES, "granularity")
        if all(choice is None for choice in (self.dtype, self.schema, self.calibration, self.granularity)):
            raise ValueError("it sets nothing; say dtype, keep_float, schema, calibration or granularity")

    def to_document(self) -> dict[str, object]:
        """As in the file."""
        choices = {
            "dtype": self.dtype,
            "schema": self.schema,
            "calibration": None if self.calibration is None else str(self.calibration),
            "granularity": self.granularity,
        }
        given = {key: value for key, value in choices.items() if value is not None}
        return {"match": self.match.to_document(), **given}
