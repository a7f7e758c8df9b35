"""Table of qglow's own targets: their names, and the modules that define them.

A room is a module with a mapping `TARGETS` from names to targets. It is imported only when one of its
targets is asked for, so that start-up does not import descriptions of processors that are not used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from qglow.targets.protocol import Target


@dataclass(frozen=True)
class Room:
    """Targets of one kind.

    module: the module that defines them. names: their names, the slowest first. processors: values of
    `platform.machine` on which the fastest of them is the default. for_tests: targets that are never listed.
    for_bundles: further names, by which other tools call the same processors; never chosen by default.
    """

    module: str
    names: tuple[str, ...]
    processors: frozenset[str] = frozenset()
    for_tests: tuple[str, ...] = ()
    for_bundles: tuple[str, ...] = ()

    def targets(self) -> Mapping[str, Target]:
        """Import the room."""
        return cast("Mapping[str, Target]", importlib.import_module(self.module).TARGETS)


ROOMS: tuple[Room, ...] = (
    Room(
        "qglow.targets.x86.targets",
        ("generic", "avx2", "avxvnni", "avx512vnni", "avx512vbmi", "amx"),
        frozenset({"x86_64"}),
        ("amx-emulated",),
        ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-vnni", "x86-64-amx"),
    ),
    Room(
        "qglow.targets.arm.targets",
        ("aarch64", "aarch64-dotprod", "aarch64-i8mm"),
        frozenset({"aarch64", "arm64"}),
        for_bundles=("armv7", *(f"cortex-{core}" for core in ("m0plus", "m3", "m4", "m7", "m33", "m55"))),
    ),
    Room("qglow.targets.riscv.targets", (), for_bundles=("riscv64", "riscv64-v")),
    Room("qglow.targets.wasm.targets", (), for_bundles=("wasm32", "wasm32-simd128")),
    Room("qglow.targets.c_source.target", (), for_bundles=("c",)),
    Room("qglow.targets.reference.target", ("reference",)),
)


def callable_names() -> list[str]:
    """Names of qglow's own targets that run in a Python process, on one kind of processor or another."""
    return [name for room in ROOMS for name in room.names]


def builtin_names() -> list[str]:
    """Names of qglow's own targets. Imports none of them."""
    return [name for room in ROOMS for name in (*room.names, *room.for_bundles)]
