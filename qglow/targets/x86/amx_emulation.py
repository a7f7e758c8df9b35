"""Functions that emulate AMX instructions on tiles in memory, for tests on hosts without AMX.

The tiles are globals of the module, so emulated code is for one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from qglow.kernels.emit.builder import I8, I32, I64, PTR, VOID, Builder, Index, Value, scalar, vec

ROW_BYTES, TILE_BYTES, REGISTERS, CONFIGURATION_BYTES = 64, 1024, 8, 64
TILES, CONFIGURATION = "amx_emulated_tiles", "amx_emulated_configuration"
FIRST_ROW_COUNT, FIRST_ROW_SIZE = 48, 16


def emulated(module: Any, name: str) -> Any:
    """The function that emulates an instruction, defined at its first use."""
    full = f"amx_emulated_{name}"
    found = module.globals.get(full)
    if found is not None:
        return found
    kinds, body = _INSTRUCTIONS[name]
    function = ir.Function(module, ir.FunctionType(VOID, kinds), full)
    function.linkage = "internal"
    e = Builder(function)
    body(e, *function.args)
    e.b.ret_void()
    return function


def _memory(e: Builder, name: str, size: int) -> Value:
    """The address of a zero-initialised global."""
    variable = e.module.globals.get(name)
    if variable is None:
        kind = ir.ArrayType(I8, size)
        variable = ir.GlobalVariable(e.module, kind, name)
        variable.initializer = ir.Constant(kind, None)
        variable.linkage = "internal"
        variable.align = ROW_BYTES
        # llvmlite makes a typed pointer of it, which fits no opaque one.
        variable.type = PTR
    return variable


def _tile(e: Builder, register: Value) -> Value:
    """Address of a register's rows."""
    start = e.scaled(e.b.zext(register, I64), TILE_BYTES)
    return e.offset(_memory(e, TILES, REGISTERS * TILE_BYTES), start)


def _configured(e: Builder, register: Value, first: int, size: int) -> Value:
    """Load a register's byte of the configuration; entries of `size` bytes begin at `first`."""
    place = e.plus(e.scaled(e.b.zext(register, I64), size), first)
    value = e.load(e.offset(_memory(e, CONFIGURATION, CONFIGURATION_BYTES), place), I8)
    return e.b.zext(value, I64)


def _rows(e: Builder, register: Value) -> Value:
    return _configured(e, register, FIRST_ROW_COUNT, 1)


def _load_configuration(e: Builder, source: Value) -> None:
    row = vec(I8, ROW_BYTES)
    e.store(e.load(source, row), _memory(e, CONFIGURATION, CONFIGURATION_BYTES))
    with e.loop(0, REGISTERS * TILE_BYTES, ROW_BYTES) as at:
        e.store(scalar(row, 0), e.offset(_memory(e, TILES, REGISTERS * TILE_BYTES), at))


def _release(e: Builder) -> None:
    e.store(scalar(vec(I8, ROW_BYTES), 0), _memory(e, CONFIGURATION, CONFIGURATION_BYTES))


def _copy_rows(e: Builder, register: Value, place: Callable[[Index], tuple[Value, Value]]) -> None:
    """Copy each configured row between the two addresses that `place` gives, source first."""
    with e.loop(0, _rows(e, register), name="row") as row:
        source, dest = place(row)
        with e.loop(0, _configured(e, register, FIRST_ROW_SIZE, 2), name="byte") as at:
            e.store(e.load(e.offset(source, at), I8), e.offset(dest, at))


def _load_tile(e: Builder, register: Value, pointer: Value, stride: Value) -> None:
    tile = _tile(e, register)
    _copy_rows(
        e,
        register,
        lambda row: (e.offset(pointer, e.b.mul(row, stride)), e.offset(tile, e.scaled(row, ROW_BYTES))),
    )


def _store_tile(e: Builder, register: Value, pointer: Value, stride: Value) -> None:
    tile = _tile(e, register)
    _copy_rows(
        e,
        register,
        lambda row: (e.offset(tile, e.scaled(row, ROW_BYTES)), e.offset(pointer, e.b.mul(row, stride))),
    )


def _clear(e: Builder, register: Value) -> None:
    with e.loop(0, TILE_BYTES, ROW_BYTES) as at:
        e.store(scalar(vec(I8, ROW_BYTES), 0), e.offset(_tile(e, register), at))


def _multiply_unsigned(e: Builder, total: Value, unsigned: Value, signed: Value) -> None:
    _multiply(e, total, unsigned, signed, e.b.zext)


def _multiply_signed(e: Builder, total: Value, left: Value, right: Value) -> None:
    _multiply(e, total, left, right, e.b.sext)


def _multiply(
    e: Builder, total: Value, lhs: Value, signed: Value, widen: Callable[[Value, Any], Value]
) -> None:
    sums, left, right = (_tile(e, register) for register in (total, lhs, signed))
    lanes = ROW_BYTES // 4
    wide = vec(I32, lanes)
    with e.loop(0, _rows(e, total), name="row") as row:
        place = e.offset(sums, e.scaled(row, ROW_BYTES))
        bytes_ = e.offset(left, e.scaled(row, ROW_BYTES))
        with e.carrying_loop(0, _rows(e, signed), [e.load(place, wide)], name="group") as carry:
            weights = e.load(e.offset(right, e.scaled(carry.index, ROW_BYTES)), vec(I8, ROW_BYTES))
            value = carry.values[0]
            for part in range(4):
                factor = e.load(e.offset(bytes_, e.plus(e.scaled(carry.index, 4), part)), I8)
                chosen = e.b.sext(e.shuffle(weights, None, range(part, ROW_BYTES, 4)), wide)
                value = e.b.add(value, e.b.mul(chosen, e.splat(widen(factor, I32), lanes)))
            carry.next([value])
        e.store(carry.values[0], place)


_INSTRUCTIONS: dict[str, tuple[list[Any], Callable[..., None]]] = {
    "ldtilecfg": ([PTR], _load_configuration),
    "tilerelease": ([], _release),
    "tileloadd64": ([I8, PTR, I64], _load_tile),
    "tilestored64": ([I8, PTR, I64], _store_tile),
    "tilezero": ([I8], _clear),
    "tdpbusd": ([I8, I8, I8], _multiply_unsigned),
    "tdpbssd": ([I8, I8, I8], _multiply_signed),
}
