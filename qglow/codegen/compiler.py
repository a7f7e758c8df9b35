"""From a planned program to object code and constants."""

from __future__ import annotations

from dataclasses import dataclass, field

from qglow.codegen.cache import ObjectCache, cache_key, default_folder
from qglow.codegen.module import ENTRY, TEAM_ENTRY, ProgramModule, build_module
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

    Code comes from `cache` where it is there already, and is added where not; None compiles
    without one. `timed` and `part_cycles` as for `build_module`. Raises CodegenError, InternalError.
    """
    module = build_module(program, isa, timed, part_cycles)
    key = cache_key(module.text, isa)
    found = cache.get(key) if cache is not None else None
    code = found if found is not None else object_code(module.text, isa)
    if cache is not None and found is None:
        cache.put(key, code)
    return _compiled(module, isa, code, found is not None)


def default_cache() -> ObjectCache:
    """The user's object cache: the folder in QGLOW_CACHE, else ~/.cache/qglow."""
    return ObjectCache(default_folder())


def emit_llvm_text(program: Program, isa: Isa) -> str:
    """LLVM text before optimisation, for any ISA."""
    return build_module(program, isa).text


def emit_assembly(program: Program, isa: Isa) -> str:
    """Assembly, for any ISA, also one that the host lacks."""
    return assembly(build_module(program, isa).text, isa)


def _compiled(module: ProgramModule, isa: Isa, code: bytes, from_cache: bool) -> CompiledProgram:
    return CompiledProgram(
        isa,
        code,
        module.weights,
        module.arena_size,
        module.placeholders,
        team_entry=TEAM_ENTRY if module.is_shared else None,
        from_cache=from_cache,
    )
