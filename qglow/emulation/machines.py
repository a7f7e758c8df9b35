"""Emulators of processors that are not the host's, and how a program for each is built."""

from __future__ import annotations

from dataclasses import dataclass

from qglow.bundles.boards import BOARDS, Board


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


def _board(target: str, cpu: str, core: str, abi: str = "eabihf") -> Emulator:
    board = BOARDS[target]
    command = ("qemu-system-arm", "-machine", board.name, "-cpu", core, "-nographic", "-monitor", "none")
    more = ("-serial", "none", "-semihosting-config", "enable=on,target=native", "-kernel")
    return Emulator(f"thumb-freestanding-{abi}", cpu, (*command, *more), board)


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
    "cortex-m0plus": _board("cortex-m0plus", "cortex_m0plus", "cortex-m3", "eabi"),
    "cortex-m3": _board("cortex-m3", "cortex_m3", "cortex-m3", "eabi"),
    "cortex-m4": _board("cortex-m4", "cortex_m4", "cortex-m4"),
    "cortex-m7": _board("cortex-m7", "cortex_m7", "cortex-m7"),
    "cortex-m33": _board("cortex-m33", "cortex_m33", "cortex-m33"),
    "cortex-m55": _board("cortex-m55", "cortex_m55", "cortex-m55"),
}
"""Emulators by the name of the target."""

SOURCES = "c"
"""The target whose bundles are sources."""
