"""Question to the processor whether it has what a target needs, and to the system whether it lets use it.

CPUID and XGETBV: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A, "CPUID", and
volume 1, chapter 13. The code needs neither a library nor other features than x86-64 itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from llvmlite import ir

from qglow.kernels.emit.builder import I1, I32, I64, Builder, Value
from qglow.targets.x86.processor import ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA

_EAX, _EBX, _ECX, _EDX = range(4)
_BITS = {
    "sse3": (1, 0, _ECX, 0),
    "ssse3": (1, 0, _ECX, 9),
    "fma": (1, 0, _ECX, 12),
    "cx16": (1, 0, _ECX, 13),
    "sse4.1": (1, 0, _ECX, 19),
    "sse4.2": (1, 0, _ECX, 20),
    "movbe": (1, 0, _ECX, 22),
    "popcnt": (1, 0, _ECX, 23),
    "xsave": (1, 0, _ECX, 27),
    "f16c": (1, 0, _ECX, 29),
    "bmi": (7, 0, _EBX, 3),
    "avx2": (7, 0, _EBX, 5),
    "bmi2": (7, 0, _EBX, 8),
    "avx512f": (7, 0, _EBX, 16),
    "avx512dq": (7, 0, _EBX, 17),
    "avx512cd": (7, 0, _EBX, 28),
    "avx512bw": (7, 0, _EBX, 30),
    "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1),
    "avx512vnni": (7, 0, _ECX, 11),
    "amx-tile": (7, 0, _EDX, 24),
    "amx-int8": (7, 0, _EDX, 25),
    "avxvnni": (7, 1, _EAX, 4),
    "lzcnt": (0x80000001, 0, _ECX, 5),
}
"""Leaf, subleaf, register and bit of CPUID, by LLVM's name of a feature. `xsave` is OSXSAVE: the system's."""
_STATES = (("avx2", 0x6), ("avx512f", 0xE6), ("amx-tile", 0x60006))
"""Parts of XCR0 that the system has to keep for threads: vectors of 256 bits, of 512, and tiles."""


def processor_has(e: Builder, features: Collection[str]) -> Value:
    """Emit the question whether processor and system have these features, as an i1.

    Asks Linux for tiles where they are among them, as their first use needs.
    """
    wanted: dict[tuple[int, int], dict[int, int]] = {}
    states = 0
    for name, mask in _STATES:
        states |= mask if name in features else 0
    for feature in {*features, *(["xsave"] if states else [])}:
        leaf, subleaf, register, bit = _BITS[feature]
        bits = wanted.setdefault((leaf, subleaf), {})
        bits[register] = bits.get(register, 0) | 1 << bit
    result = _has_leaves(e, {leaf for leaf, _ in wanted})
    # One question after the other: a processor without a leaf answers with that of another.
    for (leaf, subleaf), bits in sorted(wanted.items()):
        result = _and(e, result, partial(_has_bits, e, leaf, subleaf, bits))
    if states:
        result = _and(e, result, partial(_keeps, e, states))
    if "amx-tile" in features:
        result = _and(e, result, partial(_tiles_granted, e))
    return result


def _and(e: Builder, so_far: Value, ask: Callable[[], Value]) -> Value:
    """`so_far`, and the answer to a question that is asked only where that is true."""
    before = e.b.block
    with e.when(so_far):
        answer = ask()
        end = e.b.block
    both = e.b.phi(I1)
    both.add_incoming(ir.Constant(I1, 0), before)
    both.add_incoming(answer, end)
    return both


def _has_leaves(e: Builder, leaves: Collection[int]) -> Value:
    result: Value = ir.Constant(I1, 1)
    for first in sorted({leaf & 0x80000000 for leaf in leaves}):
        most = max(leaf for leaf in leaves if leaf & 0x80000000 == first)
        known = e.b.icmp_unsigned(">=", _cpuid(e, first, 0)[_EAX], ir.Constant(I32, most))
        result = e.b.and_(result, known)
    return result


def _has_bits(e: Builder, leaf: int, subleaf: int, bits: dict[int, int]) -> Value:
    registers = _cpuid(e, leaf, subleaf)
    result: Value = ir.Constant(I1, 1)
    for register, mask in sorted(bits.items()):
        found = e.b.and_(registers[register], ir.Constant(I32, mask))
        result = e.b.and_(result, e.b.icmp_unsigned("==", found, ir.Constant(I32, mask)))
    return result


def _cpuid(e: Builder, leaf: int, subleaf: int) -> list[Value]:
    kind = ir.FunctionType(ir.LiteralStructType([I32] * 4), [I32, I32])
    constraints = "={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"
    code = ir.InlineAsm(kind, "cpuid", constraints, side_effect=True)
    given = [ir.Constant(I32, leaf), ir.Constant(I32, subleaf)]
    results = e.b.call(code, given)
    return [e.b.extract_value(results, number) for number in range(4)]


def _keeps(e: Builder, states: int) -> Value:
    kind = ir.FunctionType(ir.LiteralStructType([I32] * 2), [I32])
    code = ir.InlineAsm(kind, "xgetbv", "={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}", side_effect=True)
    low = e.b.extract_value(e.b.call(code, [ir.Constant(I32, 0)]), 0)
    return e.b.icmp_unsigned("==", e.b.and_(low, ir.Constant(I32, states)), ir.Constant(I32, states))


def _tiles_granted(e: Builder) -> Value:
    kind = ir.FunctionType(I64, [I64] * 3)
    constraints = "={ax},{ax},{di},{si},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"
    code = ir.InlineAsm(kind, "syscall", constraints, side_effect=True)
    numbers = (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    answer = e.b.call(code, [ir.Constant(I64, number) for number in numbers])
    return e.b.icmp_unsigned("==", answer, ir.Constant(I64, 0))
