"""Loading of object code into this process, as a function to call."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llvmlite import binding

from qglow.codegen.compiler import CompiledProgram
from qglow.codegen.host import lacking
from qglow.codegen.target import target_machine
from qglow.core.errors import CodegenError, UsageError
from qglow.kernels.emit.target import VectorTarget

_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_names = itertools.count()


@dataclass(frozen=True)
class Linked:
    """Functions loaded into this process. They live as long as this object."""

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

    Raises UsageError if the host cannot run it, CodegenError if linking fails.
    """
    check_host(compiled.target)
    names = [name for name in (compiled.entry, compiled.team_entry) if name is not None]
    linked = link(compiled.objects, compiled.target, names)
    address = linked.addresses[compiled.entry]
    team = 0 if compiled.team_entry is None else linked.addresses[compiled.team_entry]
    return NativeFunction(address, team, linked, _PROTOTYPE(address))


def link(objects: Sequence[bytes], target: VectorTarget, names: Sequence[str]) -> Linked:
    """Link object files and return the addresses of `names` in them. Raises CodegenError if linking fails."""
    # JITLink keeps the code and constants of an object together. The older linker lays each where memory is
    # free, and ends the process where they come to lie more than 2 GiB apart.
    engine = binding.create_lljit_compiler(target_machine(target), use_jit_link=True)
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
        raise CodegenError(f"the code for {target.name} does not link: {error}") from error
    return Linked(addresses, engine, library)


def check_host(target: VectorTarget) -> None:
    """Prepare the process for code of this ISA. Raises UsageError if processor or system cannot run it."""
    refused = lacking(target)
    if refused is not None:
        raise UsageError(f"this host cannot run code for '{target.name}' ({refused})")
    target.prepare_process()
