"""Emulators of processors that are not the host's, and how a program for each is built.

Boards: Arm MPS2 and MPS3 FPGA images as QEMU has them; their memory maps are those of Arm's application notes
385, 386, 500, 505 and 547.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Board:
    """Memory of a microcontroller: first addresses and sizes of code and of data.

    vectors: where the processor finds its first instruction.
    """

    vectors: int
    code: int
    code_bytes: int
    ram: int
    ram_bytes: int


@dataclass(frozen=True)
class Emulator:
    """Emulation of one target.

    triple, cpu: the processor for the C compiler, in zig's names. command: the emulator, to which the program
    is added. board: None where the program is one of Linux.
    """

    triple: str
    cpu: str
    command: tuple[str, ...]
    board: Board | None = None

    @property
    def has_float_unit(self) -> bool:
        """Whether arguments are passed in registers of a float unit."""
        return self.triple.endswith("eabihf")


def _linux(triple: str, cpu: str, *command: str) -> Emulator:
    return Emulator(f"{triple}-freestanding-{'eabihf' if triple == 'arm' else 'none'}", cpu, command)


def _board(name: str, cpu: str, core: str, board: Board, abi: str = "eabihf") -> Emulator:
    command = ("qemu-system-arm", "-machine", name, "-cpu", core, "-nographic", "-monitor", "none")
    more = ("-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel")
    return Emulator(f"thumb-freestanding-{abi}", cpu, (*command, *more), board)


_MIB = 1 << 20
_MPS2 = Board(0, 0x400, 4 * _MIB - 0x400, 0x20000000, 4 * _MIB)
_AN505 = Board(0x10000000, 0x10000400, 4 * _MIB - 0x400, 0x38000000, 4 * _MIB)
_AN547 = Board(0, 0x60000000, 16 * _MIB, 0x21000000, 4 * _MIB)

EMULATORS = {
    "aarch64": _linux("aarch64", "generic", "qemu-aarch64", "-cpu", "max"),
    "aarch64-dotprod": _linux("aarch64", "generic", "qemu-aarch64", "-cpu", "max"),
    "aarch64-i8mm": _linux("aarch64", "generic", "qemu-aarch64", "-cpu", "max"),
    "armv7": _linux("arm", "cortex_a7", "qemu-arm", "-cpu", "cortex-a7"),
    "riscv64": _linux("riscv64", "baseline_rv64", "qemu-riscv64", "-cpu", "rv64"),
    "riscv64-v": _linux(
        "riscv64",
        "baseline_rv64",
        "qemu-riscv64",
        "-cpu",
        "rv64,v=true,vlen=128,elen=64,vext_spec=v1.0",
    ),
    "cortex-m0plus": _board("mps2-an385", "cortex_m0plus", "cortex-m3", _MPS2, "eabi"),
    "cortex-m3": _board("mps2-an385", "cortex_m3", "cortex-m3", _MPS2, "eabi"),
    "cortex-m4": _board("mps2-an386", "cortex_m4", "cortex-m4", _MPS2),
    "cortex-m7": _board("mps2-an500", "cortex_m7", "cortex-m7", _MPS2),
    "cortex-m33": _board("mps2-an505", "cortex_m33", "cortex-m33", _AN505),
    "cortex-m55": _board("mps3-an547", "cortex_m55", "cortex-m55", _AN547),
}
"""Emulators by the name of the target."""
