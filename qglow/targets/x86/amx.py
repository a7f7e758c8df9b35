"""AMX tiles as the kernels use them: eight registers of up to 16 rows of 64 bytes.

Intrinsics: Intel Architecture Instruction Set Extensions, "AMX instruction set". Tile numbers
and the configuration are constants of the code. On the emulated target calls go to functions
of amx_emulation, which keep the tiles in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir

from qglow.core.types import Array
from qglow.kernels.emit.builder import I8, PTR, VOID, Builder, Index, Value
from qglow.kernels.tiles.tile import PackedTile
from qglow.targets.x86.amx_emulation import emulated

TILE_ROWS = 16
ROW_BYTES = 64
TILE_BYTES = TILE_ROWS * ROW_BYTES
REGISTERS = 8
CONFIGURATION_BYTES = 64


@dataclass(frozen=True)
class AmxTile(PackedTile):
    """Weights as tdpbusd takes them: a step is 64 bytes of a run for 16 channels, in rows of four bytes."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of one tile register."""
        return TILE_BYTES

    def pack(self, filters: Array) -> Array:
        """Row r holds bytes 4r to 4r + 3 of the run for every channel."""
        vectors, steps = filters.shape[:2]
        rows = filters.reshape(vectors, steps, self.lanes, TILE_ROWS, 4).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(rows, np.int8).view(np.uint8).reshape(vectors, steps, TILE_BYTES)


@dataclass(frozen=True)
class Registers:
    """Emits tile instructions, or with `emulated` calls of functions that emulate them."""

    e: Builder
    emulated: bool

    def configure(self, rows: Sequence[int], widths: Sequence[int] = (ROW_BYTES,) * REGISTERS) -> None:
        """Give every register its number of rows, and their bytes; contents become zero."""
        self._call("ldtilecfg", configuration(self.e, rows, widths))

    def release(self) -> None:
        """Return the tile state to its initial state."""
        self._call("tilerelease")

    def load(self, register: int, pointer: Value, stride: Index) -> None:
        """Load rows that lie `stride` bytes apart; a stride of 0 repeats one row."""
        self._call("tileloadd64", ir.Constant(I8, register), pointer, self.e.index(stride))

    def store(self, register: int, pointer: Value, stride: Index) -> None:
        """Store rows `stride` bytes apart."""
        self._call("tilestored64", ir.Constant(I8, register), pointer, self.e.index(stride))

    def multiply(self, total: int, unsigned: int, signed: int) -> None:
        """Add products of unsigned and signed bytes, in groups of four, to the int32 sums of `total`."""
        self._call("tdpbusd", *(ir.Constant(I8, number) for number in (total, unsigned, signed)))

    def multiply_signed(self, total: int, left: int, right: int) -> None:
        """Add products of signed bytes, in groups of four, to the int32 sums of `total`."""
        self._call("tdpbssd", *(ir.Constant(I8, number) for number in (total, left, right)))

    def clear(self, register: int) -> None:
        """Set all rows to zero."""
        self._call("tilezero", ir.Constant(I8, register))

    def _call(self, name: str, *arguments: Value) -> None:
        if self.emulated:
            self.e.b.call(emulated(self.e.module, name), arguments)
        else:
            self.e.call(f"llvm.x86.{name}", VOID, arguments)


def configuration(e: Builder, rows: Sequence[int], widths: Sequence[int]) -> Value:
    """A constant in memory for ldtilecfg: palette 1, then bytes a row and rows of each register."""
    name = "amx_rows_" + "_".join(f"{count}x{width}" for count, width in zip(rows, widths, strict=True))
    constant = e.module.globals.get(name)
    if constant is None:
        content = bytearray(CONFIGURATION_BYTES)
        content[0] = 1
        for register, (count, width) in enumerate(zip(rows, widths, strict=True)):
            content[16 + 2 * register] = width
            content[48 + register] = count
        kind = ir.ArrayType(I8, CONFIGURATION_BYTES)
        constant = ir.GlobalVariable(e.module, kind, name)
        constant.initializer = ir.Constant(kind, content)
        constant.global_constant = True
        constant.linkage = "internal"
        constant.align = CONFIGURATION_BYTES
        # llvmlite makes a typed pointer of it, which fits no opaque one.
        constant.type = PTR
    return constant


PEAK_SUMS = 4
PRODUCTS = TILE_ROWS * TILE_ROWS * ROW_BYTES
"""Multiply-adds of one instruction."""


def matrix_peak(e: Builder, turns: Index, emulated: bool) -> tuple[int, int]:
    """Emit `turns` iterations of multiplications on registers; returns products of one, bytes of memory."""
    registers = Registers(e, emulated)
    registers.configure([TILE_ROWS] * REGISTERS)
    with e.loop(0, turns, name="turn"):
        for number in range(PEAK_SUMS):
            registers.multiply(number, 4 + number // 2, 6 + number % 2)
    registers.release()
    return PEAK_SUMS * PRODUCTS, 2 * ROW_BYTES
