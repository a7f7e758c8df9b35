"""Options that are declared once: what is derived from the declaration."""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass

import pytest

from qglow.core.options import (
    Bounds,
    FieldError,
    Option,
    declare,
    described,
    option,
    options_of,
    read_value,
    to_document,
    validate,
)


def _positive(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"needs a number, found {value!r}")
    return value


@dataclass(frozen=True)
class Inner:
    first: int = option(1, "The first")


COLOUR = Option("The colour", choices=("red", "green"))


@dataclass(frozen=True)
class Outer:
    size: int = option(help="How large", read=_positive, bounds=Bounds(1), expected="at least 1")
    colour: str = declare(COLOUR, "red")
    inner: Inner = option(Inner(), "More", nested=Inner)
    ends: tuple[str, ...] = option((), "Where it ends", key="to", write=list)
    names: dict[str, str] = option(dict, "Names")
    other: int = 5

    def __post_init__(self) -> None:
        validate(self)


def test_declared_fields_are_options_in_their_order_and_others_are_not() -> None:
    found = list(options_of(Outer))
    assert [item.name for item in found] == ["size", "colour", "inner", "ends", "names"]
    assert [item.key for item in found] == ["size", "colour", "inner", "to", "names"]
    assert [item.default for item in found] == [MISSING, "red", Inner(), (), {}]
    assert found[1].flags == ("--colour",)


@dataclass(frozen=True)
class Loose:
    limit: float | None = option(None, "No bounds")
    several: tuple[float, ...] = option((), "No bounds either")
    count: int = option(1, "How many")

    def __post_init__(self) -> None:
        validate(self)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_are_finite_without_bounds(value: float) -> None:
    with pytest.raises(FieldError, match=r"^limit .*a finite number"):
        Loose(value)
    with pytest.raises(FieldError, match=r"^several .*a finite number"):
        Loose(0.0, (1.0, value))


def test_numbers_have_64_bits() -> None:
    assert Loose(count=2**63 - 1).count > 0
    with pytest.raises(FieldError, match="^count is a number of 3322 bits"):
        Loose(count=10**1000)


def test_one_declaration_serves_several_dataclasses() -> None:
    @dataclass(frozen=True)
    class Another:
        colour: str | None = declare(COLOUR)

    (found,) = options_of(Another)
    assert found.option is COLOUR and found.default is MISSING
    assert described(COLOUR) == "The colour: red, green"


@pytest.mark.parametrize(
    ("values", "field", "message"),
    [
        ({"size": 0}, "size", "size 0: at least 1"),
        ({"size": 1, "colour": "gren"}, "colour", "'gren' is not one of red, green; did you mean 'green'?"),
    ],
)
def test_values_are_held_to_choices_and_bounds(values: dict[str, object], field: str, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        Outer(**values)  # type: ignore[arg-type]
    assert caught.value.field == field and message in str(caught.value)


def test_a_reader_that_refuses_names_the_option() -> None:
    size = next(options_of(Outer))
    assert read_value(size, 3) == 3
    with pytest.raises(FieldError, match="^size: needs a number, found 'x'$"):
        read_value(size, "x")


def test_documents_leave_out_nested_defaults_and_what_is_skipped() -> None:
    assert to_document(Outer(2, ends=("a",))) == {"size": 2, "colour": "red", "to": ["a"], "names": {}}
    assert to_document(Outer(2, inner=Inner(3)), skip=lambda value: value in ((), {}, "red")) == {
        "size": 2,
        "inner": {"first": 3},
    }
