"""Text that shows as it is wherever it is read: names come from models and files, and are not trusted."""

from __future__ import annotations

_KEPT = frozenset("\n\t")


def printable(text: str, *, lines: bool = False) -> str:
    r"""Text without characters that do something where they are printed; they become escapes of Python's.

    These are control characters (a terminal obeys ESC), those that turn the direction of text, what looks
    like nothing, and halves of surrogate pairs, which no encoding has. lines: line breaks and tabs stay.

    >>> print(printable("a\x1b[31m\u202e\nb"))
    a\x1b[31m\u202e\nb
    """
    if text.isprintable():
        return text
    kept = _KEPT if lines else frozenset()
    return "".join(one if one.isprintable() or one in kept else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
