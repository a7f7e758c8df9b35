"""Names in C for what models call as they like."""

from __future__ import annotations

import re
from collections.abc import Iterable

_OTHER = re.compile(r"[^A-Za-z0-9]+")
_KEYWORD_TEXT = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype default
delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
public register reinterpret_cast requires restrict return short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true try typedef typeid typename typeof
typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq linux unix errno
NULL EOF stdin stdout stderr
"""
_KEYWORDS = frozenset(_KEYWORD_TEXT.split())
"""Words of C and C++, and macros that compilers and headers of the examples define."""


def identifier(name: str, fallback: str) -> str:
    """A name as letters, digits and single underscores, which begins with a letter.

    >>> identifier("layer1/add:0", "tensor"), identifier("0", "tensor"), identifier("int", "tensor")
    ('layer1_add_0', 'tensor_0', 'int_')
    """
    plain = _OTHER.sub("_", name).strip("_")
    if not plain or plain[0].isdigit():
        plain = f"{fallback}_{plain}".rstrip("_")
    return f"{plain}_" if plain in _KEYWORDS else plain


def distinct_identifiers(names: Iterable[str], fallback: str) -> list[str]:
    """Identifiers of names in their order; what would be there twice gets a number. They differ in capitals
    too, for macros.

    >>> distinct_identifiers(["x.1", "x:1", "x_1_2", "X.1"], "tensor")
    ['x_1', 'x_1_3', 'x_1_2', 'X_1_4']
    """
    wanted = [identifier(name, fallback) for name in names]
    taken = {name.upper() for name in wanted}
    found: dict[str, str] = {}
    for name in wanted:
        number, plain = 2, name
        while name.upper() in found or (name != plain and name.upper() in taken):
            name, number = f"{plain}_{number}", number + 1
        found[name.upper()] = name
    return list(found.values())
