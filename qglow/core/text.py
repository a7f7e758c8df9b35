"""Lexer, attribute syntax and type syntax that the text forms of both IRs share.

    value     ::= integer | float | string | true | false | none | '[' value, ... ']'
    attributes::= '{' name '=' value, ... '}'
    type      ::= element [ '[' 'S:' scales 'O:' zeros [ 'A:' axis ] ']' ] '<' dim x dim ... '>'
    scales    ::= number | '{' number, ... '}' | '#' digest of a list given beside the text

`//` and `;` start a comment that ends with the line. A name that is not a plain identifier
is written as a quoted string.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import numpy as np

from qglow.core.errors import TextError
from qglow.core.types import (
    FIXED_POINT,
    UNSIGNED,
    ElementType,
    Quantization,
    TensorType,
    format_float,
)

AttributeValue = int | float | str | bool | None | tuple["AttributeValue", ...]
_DEEPEST_LIST = 16
NamedScales = Callable[[str], Sequence[float] | None]
T = TypeVar("T")

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|//[^\n]*|;[^\n]*)
      | (?P<number>-?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<name>[A-Za-z_][\w.]*(?:-[A-Za-z]\w*)*)
      | (?P<punctuation>->|[%@\#(){}\[\]<>=:,*])""",
    re.VERBOSE,
)
_PLAIN_NAME = re.compile(r"(?!(?:inf|nan)\b)[A-Za-z_][\w.]*\Z")


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its kind (number, string, name, punctuation, end), text and offset."""

    kind: str
    text: str
    offset: int


class Lexer:
    """Tokens of one text, with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._index = 0

    @property
    def peek(self) -> Token:
        """The next token, which stays."""
        return self._tokens[self._index]

    def next(self) -> Token:
        """Take the next token."""
        token = self._tokens[self._index]
        if token.kind != "end":
            self._index += 1
        return token

    def at(self, text: str) -> bool:
        """Whether the next token is this punctuation or name."""
        return self.peek.text == text and self.peek.kind in ("punctuation", "name")

    def accept(self, text: str) -> bool:
        """Take the next token if it is `text`."""
        if not self.at(text):
            return False
        self._index += 1
        return True

    def expect(self, text: str) -> Token:
        """Take the next token, which must be `text`. Raises TextError."""
        if not self.at(text):
            self.fail(f"expected '{text}', found '{self.peek.text or 'end of text'}'")
        return self.next()

    def name(self) -> str:
        """Take a plain or quoted name. Raises TextError."""
        token = self.next()
        if token.kind == "name":
            return token.text
        if token.kind == "string":
            return unquote(token.text)
        self.fail(f"expected a name, found '{token.text or 'end of text'}'", token)

    def integer(self) -> int:
        """Take an integer. Raises TextError."""
        token = self.next()
        if token.kind == "number" and re.fullmatch(r"-?\d+", token.text):
            return int(token.text)
        self.fail(f"expected an integer, found '{token.text or 'end of text'}'", token)

    def number(self) -> float:
        """Take a number as a float. Raises TextError."""
        token = self.next()
        if token.kind == "number":
            return float(token.text)
        self.fail(f"expected a number, found '{token.text or 'end of text'}'", token)

    def digest(self) -> str:
        """Take hexadecimal digits, which otherwise are numbers and names side by side."""
        token = self.next()
        digits, end = token.text, token.offset + len(token.text)
        while self.peek.offset == end and self.peek.kind in ("number", "name"):
            token = self.next()
            digits, end = digits + token.text, end + len(token.text)
        return digits

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise TextError at `token`, or at the next one."""
        offset = (token or self.peek).offset
        before = self._text[:offset]
        raise TextError(message, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def _split(self, text: str) -> list[Token]:
        tokens: list[Token] = []
        offset = 0
        while offset < len(text):
            match = _TOKEN.match(text, offset)
            if match is None:
                self.fail(f"unexpected character {text[offset]!r}", Token("bad", text[offset], offset))
            if match.lastgroup != "space":
                tokens.append(Token(str(match.lastgroup), match.group(), offset))
            offset = match.end()
        tokens.append(Token("end", "", len(text)))
        return tokens


def quote(text: str) -> str:
    """A double-quoted string with escapes, in printable ASCII."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def unquote(text: str) -> str:
    """The inverse of `quote`."""
    return str(json.loads(text))


def format_name(name: str) -> str:
    """A name as it stands in text: plain where possible, else quoted."""
    return name if _PLAIN_NAME.match(name) else quote(name)


def format_value(value: Any) -> str:
    """An attribute value as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, enum.Enum):
        return format_value(value.value)
    if isinstance(value, tuple):
        return "[" + ", ".join(format_value(v) for v in value) + "]"
    raise TypeError(f"{type(value).__name__} is not an attribute value")


def parse_value(lexer: Lexer, depth: int = 0) -> AttributeValue:
    """Parse one attribute value. Raises TextError, also for lists that are nested absurdly deep."""
    token = lexer.peek
    if depth > _DEEPEST_LIST:
        lexer.fail(f"lists are nested more than {_DEEPEST_LIST} deep")
    if lexer.accept("["):
        items: list[AttributeValue] = []
        while not lexer.accept("]"):
            items.append(parse_value(lexer, depth + 1))
            if not lexer.at("]"):
                lexer.expect(",")
        return tuple(items)
    if token.kind == "string":
        return lexer.name()
    if token.kind == "number":
        return lexer.integer() if re.fullmatch(r"-?\d+", token.text) else _float32(lexer.number())
    words: dict[str, AttributeValue] = {"true": True, "false": False, "none": None}
    if token.kind == "name" and token.text in words:
        lexer.next()
        return words[token.text]
    lexer.fail(f"expected a value, found '{token.text or 'end of text'}'")


def format_attributes(instance: Any) -> str:
    """`{name=value, ...}` of a dataclass instance's fields that differ from their defaults.

    Fields with `metadata={"text": False}` are left out. Empty when nothing differs.
    """
    parts = []
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not field.metadata.get("text", True) or _is_default(field, value):
            continue
        parts.append(f"{field.name}={format_value(value)}")
    return "{" + ", ".join(parts) + "}" if parts else ""


def parse_attributes(lexer: Lexer) -> dict[str, AttributeValue]:
    """Parse an optional `{name=value, ...}`; empty when there is none. Raises TextError."""
    found: dict[str, AttributeValue] = {}
    if not lexer.accept("{"):
        return found
    while not lexer.accept("}"):
        token = lexer.peek
        name = lexer.name()
        if name in found:
            lexer.fail(f"attribute {name} stands twice", token)
        lexer.expect("=")
        found[name] = parse_value(lexer)
        if not lexer.at("}"):
            lexer.expect(",")
    return found


def build(
    cls: type[T],
    attributes: Mapping[str, AttributeValue],
    lexer: Lexer,
    token: Token | None = None,
    **given: Any,
) -> T:
    """Make `cls` from parsed attributes. Raises TextError, at `token`, for unknown or missing ones."""
    known = {f.name for f in dataclasses.fields(cls) if f.metadata.get("text", True)}  # type: ignore[arg-type]
    for name in attributes:
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            lexer.fail(f"{cls.__name__} has no attribute {name}; it has {listed}", token)
    try:
        return cls(**attributes, **given)
    except (TypeError, ValueError) as error:
        lexer.fail(f"{cls.__name__}: {error}", token)


def parse_type(lexer: Lexer, named_scales: NamedScales | None = None) -> TensorType:
    """Parse a tensor type. Raises TextError.

    `named_scales` gives the scales that stand behind `S:#digest`, None for an unknown digest.
    """
    token = lexer.peek
    try:
        element = ElementType(lexer.name())
    except ValueError:
        lexer.fail(f"unknown element type '{token.text}'", token)
    quantization = _parse_quantization(lexer, element, named_scales) if lexer.accept("[") else None
    lexer.expect("<")
    dims: list[int] = []
    while not lexer.accept(">"):
        dims.append(lexer.integer())
        if not lexer.at(">"):
            _expect_cross(lexer)
    return TensorType(element, tuple(dims), quantization, lexer.accept(UNSIGNED))


def _expect_cross(lexer: Lexer) -> None:
    lexer.expect("x")


def _parse_quantization(lexer: Lexer, element: ElementType, named_scales: NamedScales | None) -> Quantization:
    start = lexer.peek
    lexer.expect("S")
    lexer.expect(":")
    scales = _named(lexer, named_scales) if lexer.at("#") else _numbers(lexer)
    lexer.expect("O")
    lexer.expect(":")
    zeros = [int(z) for z in _numbers(lexer)]
    axis = None
    if lexer.accept("A"):
        lexer.expect(":")
        axis = lexer.integer()
    is_fixed = lexer.accept("R")
    if is_fixed:
        lexer.expect(":")
        lexer.expect(FIXED_POINT)
    lexer.expect("]")
    if len(zeros) == 1:
        zeros *= len(scales)
    try:
        return Quantization(tuple(_float32(s) for s in scales), tuple(zeros), axis, element, is_fixed)
    except ValueError as error:
        lexer.fail(str(error), start)


def _named(lexer: Lexer, named_scales: NamedScales | None) -> list[float]:
    token = lexer.expect("#")
    digest = lexer.digest()
    found = named_scales(digest) if named_scales is not None else None
    if found is None:
        lexer.fail(f"no data is given for scales #{digest}", token)
    return list(found)


def _numbers(lexer: Lexer) -> list[float]:
    if not lexer.accept("{"):
        return [lexer.number()]
    values: list[float] = []
    while not lexer.accept("}"):
        values.append(lexer.number())
        if not lexer.at("}"):
            lexer.expect(",")
    return values


def _float32(value: float) -> float:
    return float(np.float32(value))


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return type(value) is type(field.default) and bool(value == field.default)
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return False
