"""Tokens, values, attributes and types: what is printed is parsed, and mistakes say where."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qglow.core.errors import TextError
from qglow.core.text import (
    Lexer,
    build,
    format_attributes,
    format_name,
    format_value,
    parse_attributes,
    parse_type,
    parse_value,
)
from qglow.core.types import ElementType, Quantization, TensorType

FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)


@dataclass(frozen=True)
class Options:
    """A stand-in for an operator."""

    size: int
    lo: float = -math.inf
    name: str = "plain"
    hidden: int = field(default=0, metadata={"text": False})


@given(VALUES)
def test_values_are_restored(value: object) -> None:
    restored = parse_value(Lexer(format_value(value)))
    assert restored == value
    assert format_value(restored) == format_value(value)


@given(st.text(min_size=1))
def test_names_are_restored(name: str) -> None:
    assert Lexer(format_name(name)).name() == name


@pytest.mark.parametrize(
    "text",
    [
        "float<>",
        "float<1 x 56 x 56 x 64>",
        "i8[S:0.0314 O:-3]<1 x 2>",
        "i8[S:1e-05 O:127]<4>",
        "i8[S:{0.1,0.25} O:0 A:0]<2 x 3>",
        "i8[S:{0.1,0.25} O:{3,-4} A:1]<3 x 2>",
        "double<2 x 0>",
    ],
)
def test_types_are_restored(text: str) -> None:
    assert str(parse_type(Lexer(text))) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flout<1>", "unknown element type 'flout'"),
        ("i8[S:-1.0 O:0]<1>", "not a positive finite float32"),
        ("i8[S:{0.1,0.2} O:0]<2>", "several scales need an axis"),
        ("float<1 y 2>", "expected 'x'"),
        ("float<1", "end of text"),
        ("i8[S:#00ff O:0 A:0]<2>", "no data is given for scales #00ff"),
    ],
)
def test_types_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(TextError, match=message):
        parse_type(Lexer(text))


def test_attributes_at_their_defaults_are_not_printed() -> None:
    assert format_attributes(Options(3)) == "{size=3}"
    assert format_attributes(Options(3, 0.0, "odd name", 7)) == '{size=3, lo=0.0, name="odd name"}'


def test_attributes_are_restored() -> None:
    options = Options(3, 0.5, 'a "quoted" name')
    lexer = Lexer(format_attributes(options))
    assert build(Options, parse_attributes(lexer), lexer) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{size=1, sise=2}", "has no attribute sise"),
        ("{size=1, size=2}", "stands twice"),
        ("{lo=1.0}", "size"),
        ("{hidden=1, size=1}", "has no attribute hidden"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(text: str, message: str) -> None:
    lexer = Lexer(text)
    with pytest.raises(TextError, match=message):
        build(Options, parse_attributes(lexer), lexer)


def test_errors_say_where() -> None:
    with pytest.raises(TextError) as caught:
        parse_value(Lexer('[1,\n  2, "open]'))
    assert (caught.value.line, caught.value.column) == (2, 6)


def test_lists_nested_absurdly_deep_are_refused() -> None:
    with pytest.raises(TextError, match="nested"):
        parse_value(Lexer("[" * 100_000))


def test_comments_are_skipped() -> None:
    lexer = Lexer("one // two\n; three\nfour")
    assert [lexer.name(), lexer.name(), lexer.peek.kind] == ["one", "four", "end"]


def test_named_scales_are_looked_up() -> None:
    kind = parse_type(Lexer("i8[S:#0a1b O:0 A:0]<2>"), {"0a1b": [0.5, 0.25]}.get)
    assert kind == TensorType(ElementType.INT8, (2,), Quantization((0.5, 0.25), (0, 0), 0))


def test_floats_are_the_shortest_that_restore_float32() -> None:
    assert format_value(float(np.float32(0.1))) == "0.1"
    assert format_value(float(np.float32(1 / 3))) == "0.33333334"
