"""From a planned program to object code and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

from qglow.codegen.cache import ObjectCache, cache_key, default_folder
from qglow.codegen.module import ENTRY, TEAM_ENTRY, ModuleBuilder, build_module
from qglow.codegen.steps import PART_CYCLES
from qglow.codegen.target import assembly, object_code
from qglow.core.types import Array
from qglow.instructions.program import Program
from qglow.kernels.isa import Isa


@dataclass(frozen=True)
class CompiledProgram:
    """Machine code of a program, and what calling it needs.

    `entry(arena, weights, placeholders)`: 64-byte aligned memory of `arena_size` bytes (plus
    64 readable ones), `weights` likewise aligned, and a table of pointers to the placeholders
    in this order. int8 placeholders hold `q + 128` (kernels.operand.to_physical).
    `team_entry` is the entry for threads of a team, None where the program is too small for one.
    """

    isa: Isa
    object_code: bytes = field(repr=False)
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
) -> CompiledProgram:
    """Compile a program whose kernels are selected and whose memory is planned.

    Code comes from `cache` where it is there already, without emitting anything, and is added where
    not; None compiles without one. `timed` and `part_cycles` as for `ModuleBuilder`.
    Raises CodegenError, InternalError.
    """
    builder = ModuleBuilder(program, isa, timed, part_cycles)
    code, from_cache = _code(builder, isa, cache)
    return CompiledProgram(
        isa,
        code.bytes,
        builder.weights(),
        program.arena_size or 0,
        builder.placeholders,
        team_entry=TEAM_ENTRY if code.is_shared else None,
        from_cache=from_cache,
    )


@dataclass(frozen=True)
class _Code:
    """Object code, and whether it has an entry for teams."""

    bytes: bytes
    is_shared: bool


def _code(builder: ModuleBuilder, isa: Isa, cache: ObjectCache | None) -> tuple[_Code, bool]:
    """The code of a program, and whether it was in the cache, where a byte for `is_shared` precedes it."""
    key = "" if cache is None else cache_key(builder.content, isa)
    found = None if cache is None else cache.get(key)
    if found is not None:
        return _Code(found[1:], bool(found[0])), True
    module = builder.build()
    code = _Code(object_code(module.text, isa), module.is_shared)
    if cache is not None:
        cache.put(key, bytes([code.is_shared]) + code.bytes)
    return code, False


def default_cache() -> ObjectCache:
    """The user's object cache: the folder in QGLOW_CACHE, else ~/.cache/qglow."""
    return ObjectCache(default_folder())


def emit_llvm_text(program: Program, isa: Isa) -> str:
    """LLVM text before optimisation, for any ISA."""
    return build_module(program, isa).text


def emit_assembly(program: Program, isa: Isa) -> str:
    """Assembly, for any ISA, also one that the host lacks."""
    return assembly(build_module(program, isa).text, isa)
