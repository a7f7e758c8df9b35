"""The C evaluator of scalar meanings: C99 text with the bits of the other evaluators.

No function of a library is called and no header but stdint.h and string.h is needed. Compile with C_FLAGS:
contraction of products and sums into fused multiply-adds would change bits, and so would arithmetic wider
than float (FLT_EVAL_METHOD must be 0, as on every target with float32 registers).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qglow.numerics.scalar.algebra import Algebra, IntegerOperation, Real, RealOperation, Relation

C_FLAGS = ("-std=c99", "-ffp-contract=off")

PREAMBLE = """\
#include <stdint.h>
#include <string.h>

static inline int32_t bits_of(float x) { int32_t n; memcpy(&n, &x, sizeof n); return n; }

static inline float real_of(int32_t n) { float x; memcpy(&x, &n, sizeof x); return x; }

static inline int32_t as_signed(uint32_t u) { int32_t n; memcpy(&n, &u, sizeof n); return n; }

static inline int32_t shifted(int32_t n, int places) {
    return n < 0 ? ~(~n >> places) : n >> places;
}

/* sqrt(m * 2^(exponent - 23)) with an even exponent is the root of m << 25, which has one bit to round by. */
static float square_root(float x) {
    int32_t exponent = -127;
    uint64_t square, root = 0;
    if (!(x > 0.0f) || bits_of(x) == 0x7f800000)
        return x < 0.0f ? real_of(0x7fc00000) : x;
    if (bits_of(x) < 0x00800000) {
        x *= 8388608.0f;
        exponent -= 23;
    }
    exponent += bits_of(x) >> 23;
    square = (uint64_t)((bits_of(x) & 0x007fffff) | 0x00800000) << (exponent & 1 ? 26 : 25);
    for (uint64_t bit = 1 << 24; bit; bit >>= 1)
        if ((root | bit) * (root | bit) <= square)
            root |= bit;
    exponent = (exponent - (exponent & 1)) / 2;
    return real_of((int32_t)((root + 1) >> 1 & 0x007fffff) | (exponent + 127) << 23);
}
"""

_REAL = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_UNSIGNED = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^", "shl": "<<", "lshr": ">>"}


@dataclass(frozen=True, slots=True)
class Term:
    """A name or a constant: what a value is called in C, and its C type."""

    text: str
    kind: str


class CAlgebra(Algebra[Term]):
    """Every operation becomes a declaration in `lines`; truth values are int."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def real(self, value: float) -> Term:
        """A hexadecimal literal, which is exact; infinity and NaN as patterns."""
        (single,) = struct.unpack("<f", struct.pack("<f", value))
        if math.isnan(single):
            return Term("real_of(0x7fc00000)", "float")
        if math.isinf(single):
            return Term(f"{'' if single > 0 else '-'}real_of(0x7f800000)", "float")
        return Term(f"{single.hex()}f", "float")

    def integer(self, value: int) -> Term:
        """A decimal literal; the smallest int32 has none."""
        value = (value + 2**31) % 2**32 - 2**31
        return Term("(-2147483647 - 1)" if value == -(2**31) else str(value), "int32_t")

    def on_reals(self, operation: RealOperation, a: Term, b: Term) -> Term:
        """An operator of C."""
        return self._declare("float", f"{a.text} {_REAL[operation]} {b.text}")

    def sqrt(self, x: Term) -> Term:
        """A call that computes in integers, because C's own is in its mathematical library."""
        return self._declare("float", f"square_root({x.text})")

    def on_integers(self, operation: IntegerOperation, a: Term, b: Term) -> Term:
        """An operator on unsigned integers, whose overflow C defines; a call for shifts with the sign."""
        if operation == "ashr":
            return self._declare("int32_t", f"shifted({a.text}, {b.text})")
        return self._declare(
            "int32_t", f"as_signed((uint32_t){a.text} {_UNSIGNED[operation]} (uint32_t){b.text})"
        )

    def compare(self, relation: Relation, a: Term, b: Term) -> Term:
        """An operator of C, false of NaN."""
        return self._declare("int", f"{a.text} {relation} {b.text}")

    def is_nan(self, x: Term) -> Term:
        """A number that differs from itself."""
        return self._declare("int", f"{x.text} != {x.text}")

    def compare_unsigned(self, relation: Relation, a: Term, b: Term) -> Term:
        """An operator of C."""
        return self._declare("int", f"(uint32_t){a.text} {relation} (uint32_t){b.text}")

    def either(self, a: Term, b: Term) -> Term:
        """A bitwise or, which needs no branch."""
        return self._declare("int", f"{a.text} | {b.text}")

    def select(self, condition: Term, yes: Term, no: Term) -> Term:
        """A conditional expression."""
        return self._declare(yes.kind, f"{condition.text} ? {yes.text} : {no.text}")

    def bits(self, x: Term) -> Term:
        """A copy by memcpy, which compilers make a move of registers."""
        return self._declare("int32_t", f"bits_of({x.text})")

    def from_bits(self, n: Term) -> Term:
        """A copy by memcpy."""
        return self._declare("float", f"real_of({n.text})")

    def converted(self, n: Term) -> Term:
        """A cast, which rounds to nearest even."""
        return self._declare("float", f"(float){n.text}")

    def _declare(self, kind: str, expression: str) -> Term:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const {kind} {name} = {expression};")
        return Term(name, kind)


def c_function(name: str, meaning: Callable[..., Real], operands: int = 1) -> str:
    """`static inline float name(float x0, ...)` with this meaning; PREAMBLE must stand before it."""
    algebra = CAlgebra()
    names = [f"x{index}" for index in range(operands)]
    result = meaning(*(Real(algebra, Term(operand, "float")) for operand in names))
    body = _body(algebra, names, [f"return {result.value.text};"])
    parameters = ", ".join(f"float {operand}" for operand in names)
    return f"static inline float {name}({parameters}) {{\n{body}}}\n"


def c_procedure(name: str, meaning: Callable[..., Sequence[Real]], operands: int, results: int) -> str:
    """`static inline void name(float x0, ..., float *results)` of a meaning with several results."""
    algebra = CAlgebra()
    names = [f"x{index}" for index in range(operands)]
    found = meaning(*(Real(algebra, Term(operand, "float")) for operand in names))
    writes = [f"results[{number}] = {found[number].value.text};" for number in range(results)]
    body = _body(algebra, names, writes)
    parameters = "".join(f"float {operand}, " for operand in names)
    return f"static inline void {name}({parameters}float *results) {{\n{body}}}\n"


def _body(algebra: CAlgebra, parameters: Sequence[str], ends: Sequence[str]) -> str:
    """The lines of a function. What a meaning computes and does not use is left out."""
    kept = list(ends)
    for line in reversed(algebra.lines):
        name = line.split(" = ", 1)[0].rsplit(" ", 1)[1]
        if any(_is_in(name, later) for later in kept):
            kept.insert(0, line)
    unused = [f"(void){name};" for name in parameters if not any(_is_in(name, line) for line in kept)]
    return "".join(f"    {line}\n" for line in [*unused, *kept])


def _is_in(name: str, line: str) -> bool:
    return re.search(rf"\b{name}\b", line) is not None
