"""C of what plain integers have of their own, with the results of numerics.integers."""

from __future__ import annotations

from qglow.core.types import ElementType
from qglow.csource.writer import SourceSite, emits
from qglow.instructions.ops.logic import Whole

_CALLS = {"left": "moved_left", "right": "moved_right", "remainder": "remainder_of", "modulo": "modulo_of"}
_SIGNS = {"and": "&", "or": "|", "xor": "^"}


@emits(Whole)
def whole(site: SourceSite) -> None:
    """Bits, shifts and remainders."""
    operation, bits = site.operation.operation, 8 * site.kind("dest").element.size
    with site.writer.loops(site.shape("dest")) as indices:
        left, right = (site.load(name, indices) for name in ("lhs", "rhs"))
        if operation in _SIGNS:
            value = f"{left} {_SIGNS[operation]} {right}"
        elif operation in ("left", "right"):
            end = "" if operation == "left" else _ending(site)
            value = f"{_CALLS[operation]}{end}({left}, {right}, {bits})"
        else:
            value = f"{_CALLS[operation]}{_ending(site)}({left}, {right})"
        site.store("dest", indices, value)


def quotient_or_power(site: SourceSite, name: str) -> None:
    """Quotients towards zero and powers, by name."""
    with site.writer.loops(site.shape("dest")) as indices:
        left, right = (site.load(side, indices) for side in ("lhs", "rhs"))
        site.store("dest", indices, f"{name}{_ending(site)}({left}, {right})")


def _ending(site: SourceSite) -> str:
    """End of the names of functions of numbers without a sign that fill 64 bits."""
    return "_unsigned" if site.kind("dest").element is ElementType.UINT64 else ""
