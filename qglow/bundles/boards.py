"""Memory of the microcontroller boards that bundles are tried on.

Arm's MPS2 and MPS3 FPGA images: application notes 385, 386, 500, 505 and 547.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Board:
    """Memory of a board: first addresses and sizes of code and of data.

    name: QEMU's. vectors: where the processor finds its first instruction.
    """

    name: str
    vectors: int
    code: int
    code_bytes: int
    ram: int
    ram_bytes: int


_MIB = 1 << 20


def _mps2(name: str) -> Board:
    return Board(name, 0, 0x400, 4 * _MIB - 0x400, 0x20000000, 4 * _MIB)


_AN385 = _mps2("mps2-an385")
BOARDS = {
    "cortex-m0plus": _AN385,
    "cortex-m3": _AN385,
    "cortex-m4": _mps2("mps2-an386"),
    "cortex-m7": _mps2("mps2-an500"),
    "cortex-m33": Board("mps2-an505", 0x10000000, 0x10000400, 4 * _MIB - 0x400, 0x38000000, 4 * _MIB),
    "cortex-m55": Board("mps3-an547", 0, 0x60000000, 16 * _MIB, 0x21000000, 4 * _MIB),
}
"""Boards by the name of the target."""
