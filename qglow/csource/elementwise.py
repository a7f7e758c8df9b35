"""C of operations that compute each element from those at its place."""

from __future__ import annotations

from qglow.core.errors import UnsupportedError
from qglow.csource.integers import quotient_or_power
from qglow.csource.writer import EMITTERS, SourceSite, c_type, emits, number
from qglow.instructions.ops.elementwise import (
    Affine,
    Clip,
    ElementAdd,
    ElementDiv,
    ElementMul,
    ElementPower,
    ElementSub,
    PRelu,
)
from qglow.instructions.ops.functions import FUNCTIONS
from qglow.instructions.ops.quantize import Dequantize, HighByte, Lookup, LowByte, Quantize, Rescale
from qglow.instructions.ops.selection import ElementMax, ElementMin, Select
from qglow.numerics.fixed_point import sum_bits, sum_multipliers
from qglow.numerics.requantize import multiplier, ratio
from qglow.numerics.scalar.algebra import Real
from qglow.numerics.scalar.clamps import larger, prelu, smaller
from qglow.numerics.scalar.polynomials import power

_SIGNS = {ElementAdd.opcode: "+", ElementSub.opcode: "-", ElementMul.opcode: "*"}
_WRAPPED = "uint64_t"
"""Plain integers are computed as unsigned numbers of 64 bits, whose overflow C defines, and cut off."""


@emits(ElementAdd, ElementSub)
def add_or_subtract(site: SourceSite) -> None:
    """Rule 6: both operands in steps of the result, each a multiplication."""
    sign = _SIGNS[site.operation.opcode]
    if not site.kind("dest").is_quantized:
        _plain(site, sign)
        return
    o = site.operation
    with site.writer.loops(site.shape("dest")) as indices:
        if site.in_fixed_point("dest"):
            result = site.placed("dest", _fixed_sum(site, sign, indices), o.q_lo, o.q_hi)
        else:
            sides = [_in_steps(site, name, indices) for name in ("lhs", "rhs")]
            value = site.declared("float", "value", f"{sides[0]} {sign} {sides[1]}")
            result = site.saturated("dest", value, o.q_lo, o.q_hi)
        site.store("dest", indices, result)


@emits(ElementMul)
def multiply(site: SourceSite) -> None:
    """Rule 6: the exact product, rescaled once."""
    if not site.kind("dest").is_quantized:
        _plain(site, "*")
        return
    left, right, to = (site.kind(name).quantization for name in ("lhs", "rhs", "dest"))
    assert left is not None and right is not None and to is not None
    factor = number(float(multiplier(left.scale, right.scale, to.scale)))
    with site.writer.loops(site.shape("dest")) as indices:
        product = f"{site.steps('lhs', indices)} * {site.steps('rhs', indices)}"
        whole = site.declared("int32_t", "product", product)
        value = site.rescaled("dest", whole, factor, site.operation.q_lo, site.operation.q_hi)
        site.store("dest", indices, value)


@emits(ElementDiv, ElementPower)
def divide_or_raise(site: SourceSite) -> None:
    """The float operation on reals, within bounds of integers."""
    o = site.operation
    if site.kind("dest").is_plain_integer:
        quotient_or_power(site, "power_of" if isinstance(o, ElementPower) else "quotient_of")
        return
    with site.writer.loops(site.shape("dest")) as indices:
        left = site.declared("float", "left", site.real("lhs", indices))
        right = site.declared("float", "right", site.real("rhs", indices))
        result = f"{left} / {right}"
        if isinstance(o, ElementPower):
            result = f"{site.functions.of(power, 2)}({left}, {right})"
        value = site.declared("float", "value", result)
        to = site.kind("dest").quantization
        if to is None:
            site.store("dest", indices, site.clipped(value, o.lo, o.hi))
        else:
            steps = site.declared("float", "steps", f"{value} / {number(to.scale)}")
            site.store("dest", indices, site.saturated("dest", steps, o.q_lo, o.q_hi))


@emits(PRelu)
def prelu_of(site: SourceSite) -> None:
    """The float function of reals."""
    name = site.functions.of(prelu, 2)
    with site.writer.loops(site.shape("dest")) as indices:
        x = site.declared("float", "x", site.real("src", indices))
        y = site.declared("float", "y", f"{name}({x}, {site.load('slope', indices)})")
        site.store("dest", indices, site.quantized("dest", y))


@emits(Clip)
def clip_of(site: SourceSite) -> None:
    """Bounds of floats."""
    with site.writer.loops(site.shape("dest")) as indices:
        site.store(
            "dest", indices, site.clipped(site.load("src", indices), site.operation.lo, site.operation.hi)
        )


@emits(Affine)
def affine(site: SourceSite) -> None:
    """A factor and a term for each channel."""
    o, is_float = site.operation, site.kind("src").is_float
    with site.writer.loops(site.shape("dest")) as indices:
        x = site.load("src", indices) if is_float else f"(float){site.steps('src', indices)}"
        channel = indices[-1:]
        product = site.declared("float", "product", f"{x} * {site.load('scale', channel)}")
        value = site.declared("float", "value", f"{product} + {site.load('shift', channel)}")
        result = (
            site.clipped(value, o.lo, o.hi) if is_float else site.saturated("dest", value, o.q_lo, o.q_hi)
        )
        site.store("dest", indices, result)


@emits(Quantize)
def quantize(site: SourceSite) -> None:
    """Rule 1."""
    with site.writer.loops(site.shape("dest")) as indices:
        site.store("dest", indices, site.quantized("dest", site.load("src", indices)))


@emits(Dequantize)
def dequantize(site: SourceSite) -> None:
    """Rule 2."""
    with site.writer.loops(site.shape("dest")) as indices:
        site.store("dest", indices, site.real("src", indices))


@emits(Rescale)
def rescale(site: SourceSite) -> None:
    """Integers in steps of others."""
    with site.writer.loops(site.shape("dest")) as indices:
        value = _rescaled(site, "src", indices, site.operation.q_lo, site.operation.q_hi)
        site.store("dest", indices, value)


@emits(Lookup)
def look_up(site: SourceSite) -> None:
    """An entry of a table of 256 bytes."""
    with site.writer.loops(site.shape("dest")) as indices:
        site.store("dest", indices, site.load("table", (f"{site.load('src', indices)} + 128",)))


@emits(HighByte, LowByte)
def byte_of_word(site: SourceSite) -> None:
    """One byte of an int16."""
    is_high = isinstance(site.operation, HighByte)
    with site.writer.loops(site.shape("dest")) as indices:
        x = site.load("src", indices)
        value = f"shifted({x}, 8)" if is_high else f"({x} & 255) - 128"
        site.store("dest", indices, value)


@emits(ElementMax, ElementMin)
def extremum(site: SourceSite) -> None:
    """The larger or the smaller one, of integers after bringing them to the parameters of the result."""
    is_max = isinstance(site.operation, ElementMax)
    with site.writer.loops(site.shape("dest")) as indices:
        left, right = (_chosen(site, name, indices) for name in ("lhs", "rhs"))
        if site.kind("dest").is_float:
            value = f"{site.functions.of(larger if is_max else smaller, 2)}({left}, {right})"
        else:
            value = f"{left} {'>' if is_max else '<'} {right} ? {left} : {right}"
        site.store("dest", indices, value)


@emits(Select)
def select(site: SourceSite) -> None:
    """One of two by a condition."""
    with site.writer.loops(site.shape("dest")) as indices:
        left, right = (_chosen(site, name, indices) for name in ("lhs", "rhs"))
        site.store("dest", indices, f"{site.load('condition', indices)} ? {left} : {right}")


def function(site: SourceSite) -> None:
    """A scalar function of floats."""
    operation = site.operation

    def meaning(x: Real) -> Real:
        result: Real = operation.real(x)
        return result

    name = site.functions.of(meaning)
    with site.writer.loops(site.shape("dest")) as indices:
        site.store("dest", indices, f"{name}({site.load('src', indices)})")


EMITTERS.update(dict.fromkeys(FUNCTIONS, function))


def _plain(site: SourceSite, sign: str) -> None:
    """Floats within bounds, or integers that wrap around."""
    o, kind = site.operation, site.kind("dest")
    with site.writer.loops(site.shape("dest")) as indices:
        left, right = (site.load(name, indices) for name in ("lhs", "rhs"))
        if kind.is_float:
            value = site.declared("float", "value", f"{left} {sign} {right}")
            site.store("dest", indices, site.clipped(value, o.lo, o.hi))
        else:
            site.store("dest", indices, f"({_WRAPPED}){left} {sign} ({_WRAPPED}){right}")


def _in_steps(site: SourceSite, name: str, indices: list[str]) -> str:
    """A declared float32: an operand of integers in steps of the result."""
    source, to = site.kind(name).quantization, site.kind("dest").quantization
    assert source is not None and to is not None
    factor = number(float(ratio(source.scale, to.scale)))
    return site.declared("float", f"{name}_steps", f"(float){site.steps(name, indices)} * {factor}")


def _rescaled(
    site: SourceSite,
    name: str,
    indices: list[str],
    low: int | None = None,
    high: int | None = None,
    label: str = "scaled",
) -> str:
    """An operand of integers as the integer of the result."""
    source, to = site.kind(name).quantization, site.kind("dest").quantization
    assert source is not None and to is not None
    factor = number(float(ratio(source.scale, to.scale)))
    return site.rescaled("dest", site.steps(name, indices), factor, low, high, label)


def _fixed_sum(site: SourceSite, sign: str, indices: list[str]) -> str:
    """Rule 10: operands moved up, brought to a common scale, added, and brought to that of the result."""
    lhs, rhs, to = (site.kind(name).quantization for name in ("lhs", "rhs", "dest"))
    assert lhs is not None and rhs is not None and to is not None
    bits = sum_bits(lhs, rhs)
    factors = [number(factor) for factor in sum_multipliers(lhs.scale, rhs.scale, to.scale, bits)]
    moved = [f"{site.steps(name, indices)} * {1 << bits}" for name in ("lhs", "rhs")]
    sides = [f"fixed_product({x}, {factor})" for x, factor in zip(moved, factors, strict=False)]
    return f"fixed_product({sides[0]} {sign} {sides[1]}, {factors[2]})"


def _chosen(site: SourceSite, name: str, indices: list[str]) -> str:
    """A declared element of an operand with the parameters of the result."""
    if not site.kind("dest").is_quantized:
        return site.declared(c_type(site.kind(name).element), f"{name}_value", site.load(name, indices))
    return site.declared("int32_t", f"{name}_value", _rescaled(site, name, indices, label=f"{name}_scaled"))


def _refuse(site: SourceSite, what: str) -> None:
    raise UnsupportedError(
        f"{site.instruction.name}: there is no C for {site.operation.opcode} of {what} yet"
    )
