"""Compilation of a planned program to object code and constants."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from qglow.codegen.cache import KernelCache, ObjectCache, cache_key, default_folder
from qglow.codegen.functions import BATCH_SIZE
from qglow.codegen.module import ENTRY, TEAM_ENTRY, ModuleBuilder
from qglow.codegen.parallel import compile_modules
from qglow.codegen.slots import CallSlots
from qglow.codegen.target import assembly
from qglow.codegen.weights import WeightBlob
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget


@dataclass(frozen=True)
class CompiledProgram:
    """Machine code of a program, one object file for each kernel and one for the entries, and how to call it.

    `entry(arena, weights, placeholders)`: 64-byte aligned memory of `arena_size` bytes (plus 64 readable
    ones), `weights` likewise aligned, and a table of pointers in the order of `placeholders`. int8
    placeholders hold `q + target.activation_bias` (kernels.emit.operand.to_physical). `team_entry` is the
    entry for threads of a team, None if the program is too small for one. `from_cache`: all of the code
    was in the cache of programs; otherwise `kernels_compiled` says how many kernels were in no cache.
    slots: of all calls, for a program that stops after every kernel.
    """

    target: VectorTarget
    objects: tuple[bytes, ...] = field(repr=False)
    weights: Array = field(repr=False)
    arena_size: int
    placeholders: tuple[str, ...]
    entry: str = ENTRY
    team_entry: str | None = None
    from_cache: bool = False
    kernels_compiled: int = 0
    slots: tuple[CallSlots, ...] = ()


def compile_program(
    program: Program,
    target: VectorTarget,
    cache: ObjectCache | None = None,
    timed: bool = False,
    part_cycles: float | None = None,
    processes: int = 1,
    batch_size: float = BATCH_SIZE,
    stepped: bool = False,
    kernels: KernelCache | None = None,
    blob: WeightBlob | None = None,
) -> CompiledProgram:
    """Compile a program whose kernels are selected and whose memory is planned.

    Code of the whole program is taken from `cache` if it is there, without emitting anything, and is
    added otherwise; likewise code of single kernels with `kernels`. `timed`, `part_cycles` and `stepped`
    are those of `ModuleBuilder`. `batch_size` is the number of LLVM instructions that one process gets at
    a time. blob: constants of several programs, to which those of this one are added; the result then has no
    weights of its own. The code does not depend on the caches, on `processes` or on `batch_size`. Raises
    CodegenError, InternalError.
    """
    builder = ModuleBuilder(program, target, timed, part_cycles, stepped, blob)
    key = "" if cache is None else cache_key(builder.content, target)
    code = None if cache is None else _unpack(cache.get(key))
    from_cache, compiled = code is not None, 0
    if code is None:
        functions = builder.functions(kernels, batch_size)
        made = compile_modules(builder.batches(functions), target, processes)
        compiled = functions.compiled
        code = _Code(functions.objects(made), builder.is_shared)
        if cache is not None:
            cache.put(key, _pack(code))
    return CompiledProgram(
        target,
        code.objects,
        builder.weights() if blob is None else np.zeros(0, np.uint8),
        program.arena_size or 0,
        builder.placeholders,
        team_entry=TEAM_ENTRY if code.is_shared else None,
        from_cache=from_cache,
        kernels_compiled=compiled,
        slots=builder.slots() if stepped else (),
    )


@dataclass(frozen=True)
class _Code:
    """Object files, and whether there is an entry for teams."""

    objects: tuple[bytes, ...]
    is_shared: bool


def _pack(code: _Code) -> bytes:
    """Pack a cache entry: a byte for `is_shared`, the number and the sizes of the files, the files."""
    sizes = [len(code.objects), *map(len, code.objects)]
    return struct.pack(f"<B{len(sizes)}Q", code.is_shared, *sizes) + b"".join(code.objects)


def _unpack(entry: bytes | None) -> _Code | None:
    """Unpack code that `_pack` packed; the cache has checked the bytes. None for no entry."""
    if entry is None:
        return None
    is_shared, count = struct.unpack_from("<BQ", entry)
    objects, start = [], struct.calcsize(f"<BQ{count}Q")
    for size in struct.unpack_from(f"<{count}Q", entry, struct.calcsize("<BQ")):
        objects.append(entry[start : start + size])
        start += size
    return _Code(tuple(objects), bool(is_shared))


def default_cache() -> ObjectCache:
    """The user's cache of whole programs: the folder in QGLOW_CACHE, else ~/.cache/qglow."""
    return ObjectCache(default_folder())


def default_kernels(target: VectorTarget) -> KernelCache:
    """The user's cache of kernels, in the same folder."""
    return KernelCache(default_folder(), target)


def emit_llvm_text(program: Program, target: VectorTarget) -> str:
    """LLVM text of a program as one module, not optimised, for any target."""
    return ModuleBuilder(program, target).text()


def emit_assembly(program: Program, target: VectorTarget) -> str:
    """Assembly of a program for any target, even one that the host cannot run."""
    return assembly(emit_llvm_text(program, target), target)
