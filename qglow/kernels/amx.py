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
from qglow.kernels.amx_emulation import emulated
from qglow.kernels.builder import I8, PTR, VOID, Emitter, Index, Value
from qglow.kernels.tile import PackedTile

TILE_ROWS = 16
ROW_BYTES = 64
TILE_BYTES = TILE_ROWS * ROW_BYTES
REGISTERS = 8
CONFIGURATION_BYTES = 64


@dataclass(frozen=True)
class AmxTile(PackedTile):
    """Weights for tdpbusd: 16 channels in 16 rows of four bytes each, 64 bytes of a run a step."""

    @property
    def weight_bytes(self) -> int:
        """One register."""
        return TILE_BYTES

    def pack(self, filters: Array) -> Array:
        """Row r holds bytes 4r to 4r + 3 of the run for every channel."""
        vectors, steps = filters.shape[:2]
        rows = filters.reshape(vectors, steps, self.lanes, TILE_ROWS, 4).transpose(0, 1, 3, 2, 4)
        return np.ascontiguousarray(rows, np.int8).view(np.uint8).reshape(vectors, steps, TILE_BYTES)


@dataclass(frozen=True)
class Registers:
    """Emits tile instructions."""

    e: Emitter

    def configure(self, rows: Sequence[int]) -> None:
        """Give every register its number of rows, of 64 bytes; contents become zero."""
        self._call("ldtilecfg", configuration(self.e, rows))

    def release(self) -> None:
        """Leave the tile state as if it had never been used."""
        self._call("tilerelease")

    def load(self, register: int, pointer: Value, stride: Index) -> None:
        """Rows that lie `stride` bytes apart; a stride of 0 repeats one row."""
        self._call("tileloadd64", ir.Constant(I8, register), pointer, self.e.index(stride))

    def store(self, register: int, pointer: Value, stride: Index) -> None:
        """The opposite of `load`."""
        self._call("tilestored64", ir.Constant(I8, register), pointer, self.e.index(stride))

    def multiply(self, total: int, unsigned: int, signed: int) -> None:
        """int32 `total` plus unsigned times signed bytes, groups of four."""
        self._call("tdpbusd", *(ir.Constant(I8, number) for number in (total, unsigned, signed)))

    def _call(self, name: str, *arguments: Value) -> None:
        if self.e.isa.emulates_amx:
            self.e.b.call(emulated(self.e.module, self.e.isa, name), arguments)
        else:
            self.e.call(f"llvm.x86.{name}", VOID, arguments)


def configuration(e: Emitter, rows: Sequence[int]) -> Value:
    """A constant in memory for ldtilecfg: palette 1, then bytes a row and rows of each register."""
    name = "amx_rows_" + "_".join(str(count) for count in rows)
    constant = e.module.globals.get(name)
    if constant is None:
        content = bytearray(CONFIGURATION_BYTES)
        content[0] = 1
        for register, count in enumerate(rows):
            content[16 + 2 * register] = ROW_BYTES
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
