"""Object code into this process, as a function to call."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llvmlite import binding

from qglow.codegen.compiler import CompiledProgram
from qglow.codegen.target import target_machine
from qglow.core.errors import CodegenError, UsageError
from qglow.kernels.isa import Isa, host_isas

_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_names = itertools.count()


@dataclass(frozen=True)
class Linked:
    """Functions in this process. They are there as long as this object."""

    addresses: dict[str, int]
    _engine: Any = field(repr=False)
    _library: Any = field(repr=False)


@dataclass(frozen=True)
class NativeFunction:
    """A loaded entry: `f(arena, weights, placeholders)`, addresses as integers.

    The call releases Python's global lock. The code lives as long as this object. `team_address`
    is that of the entry for a team, 0 where there is none.
    """

    address: int
    team_address: int
    _linked: Linked = field(repr=False)
    _call: Any = field(repr=False)

    def __call__(self, arena: int, weights: int, placeholders: int) -> None:
        self._call(arena, weights, placeholders)


def load(compiled: CompiledProgram) -> NativeFunction:
    """Link object code into this process.

    Raises UsageError where the host cannot run it, CodegenError where linking fails.
    """
    check_host(compiled.isa)
    names = [name for name in (compiled.entry, compiled.team_entry) if name is not None]
    linked = link(compiled.objects, compiled.isa, names)
    address = linked.addresses[compiled.entry]
    team = 0 if compiled.team_entry is None else linked.addresses[compiled.team_entry]
    return NativeFunction(address, team, linked, _PROTOTYPE(address))


def link(objects: Sequence[bytes], isa: Isa, names: Sequence[str]) -> Linked:
    """Addresses of these functions of object files. Raises CodegenError where linking fails."""
    engine = binding.create_lljit_compiler(target_machine(isa))
    builder = binding.JITLibraryBuilder()
    for content in objects:
        builder.add_object_img(content)
    builder.add_current_process()
    for name in names:
        builder.export_symbol(name)
    try:
        library = builder.link(engine, f"qglow{next(_names)}")
        addresses = {name: int(library[name]) for name in names}
    except RuntimeError as error:
        raise CodegenError(f"the code for {isa.name} does not link: {error}") from error
    return Linked(addresses, engine, library)


def check_host(isa: Isa) -> None:
    """Make ready for code of this ISA. Raises UsageError where the host or its kernel cannot run it."""
    available = host_isas(emulated=True)
    if isa not in available:
        raise UsageError(f"this host cannot run code for '{isa.name}'")
    if isa.has("amx-tile"):
        _request_tiles()


def _request_tiles() -> None:
    """Ask Linux for the tile registers, once a process is enough; the first tile instruction
    would end the process otherwise."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) != 0:
        raise UsageError(
            f"the kernel refuses AMX tiles (errno {ctypes.get_errno()}); choose QGLOW_ISA=avx512vnni"
        )
