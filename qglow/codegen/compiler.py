"""From a planned program to object code and constants."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from qglow.codegen.cache import ObjectCache, cache_key, default_folder
from qglow.codegen.functions import MODULE_SIZE
from qglow.codegen.module import ENTRY, TEAM_ENTRY, ModuleBuilder
from qglow.codegen.parallel import compile_modules
from qglow.codegen.steps import PART_CYCLES
from qglow.codegen.target import assembly
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.kernels.isa import Isa


@dataclass(frozen=True)
class CompiledProgram:
    """Machine code of a program, in one or several object files, and what calling it needs.

    `entry(arena, weights, placeholders)`: 64-byte aligned memory of `arena_size` bytes (plus
    64 readable ones), `weights` likewise aligned, and a table of pointers to the placeholders
    in this order. int8 placeholders hold `q + 128` (kernels.operand.to_physical).
    `team_entry` is the entry for threads of a team, None where the program is too small for one.
    """

    isa: Isa
    objects: tuple[bytes, ...] = field(repr=False)
    weights: Array = field(repr=False)
    arena_size: int
    placeholders: tuple[str, ...]
    entry: str = ENTRY
    team_entry: str | None = None
    from_cache: bool = False


def compile_program(
    program: Program,
    isa: Isa,
    cache: ObjectCache | None = None,
    timed: bool = False,
    part_cycles: float = PART_CYCLES,
    processes: int = 1,
    module_size: float = MODULE_SIZE,
) -> CompiledProgram:
    """Compile a program whose kernels are selected and whose memory is planned.

    Code comes from `cache` where it is there already, without emitting anything, and is added where
    not; None compiles without one. `timed`, `part_cycles` and `module_size` as for `ModuleBuilder`. The
    code is the same for every number of `processes`. Raises CodegenError, InternalError.
    """
    builder = ModuleBuilder(program, isa, timed, part_cycles, module_size)
    key = "" if cache is None else cache_key(builder.content, isa)
    code = None if cache is None else _unpack(cache.get(key))
    from_cache = code is not None
    if code is None:
        objects = tuple(compile_modules(builder.modules(), isa, processes))
        code = _Code(objects, builder.is_shared)
        if cache is not None:
            cache.put(key, _pack(code))
    return CompiledProgram(
        isa,
        code.objects,
        builder.weights(),
        program.arena_size or 0,
        builder.placeholders,
        team_entry=TEAM_ENTRY if code.is_shared else None,
        from_cache=from_cache,
    )


@dataclass(frozen=True)
class _Code:
    """Object files, and whether there is an entry for teams."""

    objects: tuple[bytes, ...]
    is_shared: bool


def _pack(code: _Code) -> bytes:
    """An entry of the cache: a byte for `is_shared`, the number and the sizes of the files, the files."""
    sizes = [len(code.objects), *map(len, code.objects)]
    return struct.pack(f"<B{len(sizes)}Q", code.is_shared, *sizes) + b"".join(code.objects)


def _unpack(entry: bytes | None) -> _Code | None:
    """What `_pack` packed, which the cache has checked."""
    if entry is None:
        return None
    is_shared, count = struct.unpack_from("<BQ", entry)
    objects, start = [], struct.calcsize(f"<BQ{count}Q")
    for size in struct.unpack_from(f"<{count}Q", entry, struct.calcsize("<BQ")):
        objects.append(entry[start : start + size])
        start += size
    return _Code(tuple(objects), bool(is_shared))


def default_cache() -> ObjectCache:
    """The user's object cache: the folder in QGLOW_CACHE, else ~/.cache/qglow."""
    return ObjectCache(default_folder())


def emit_llvm_text(program: Program, isa: Isa) -> str:
    """LLVM text before optimisation, for any ISA, in one module."""
    [text] = ModuleBuilder(program, isa, module_size=math.inf).modules()
    return text


def emit_assembly(program: Program, isa: Isa) -> str:
    """Assembly, for any ISA, also one that the host lacks."""
    return assembly(emit_llvm_text(program, isa), isa)
