"""Artefacts made and loaded: code is taken from where it may be trusted, else compiled.

Code that lies in an artefact runs only for a caller who trusts the file. Otherwise the
program's text is compiled once, and the result is kept in the user's own cache, under the
identity of the program, the compiler's version and the instruction set.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from qglow.codegen.cache import compiler_version, default_folder
from qglow.codegen.compiler import compile_program
from qglow.codegen.jit import load
from qglow.codegen.kernel_choices import saved_choices
from qglow.core.errors import ArtefactError, InputFileError
from qglow.core.files import sha256_hex
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program
from qglow.kernels.choice import NO_CHOICES, Choices
from qglow.kernels.isa import Isa, select_isa
from qglow.kernels.select import select_kernels
from qglow.runtime.artefact import (
    Artefact,
    StoredProgram,
    load_artefact,
    load_code,
    save_artefact,
    save_code,
)
from qglow.runtime.cores import choose_processes, choose_threads
from qglow.runtime.executable import Executable
from qglow.runtime.variant import CodeVariant
from qglow.toolchain.compilation import CompileOptions


def write_artefact(path: Path, program: Program, options: CompileOptions | None = None) -> None:
    """Compile a lowered program (which stays as it is) for one ISA and write model.qglow."""
    save_artefact(path, *make_artefact(program, options))


def make_artefact(
    program: Program, options: CompileOptions | None = None
) -> tuple[StoredProgram, list[CodeVariant]]:
    """What `save_artefact` writes of a lowered program (which stays as it is), compiled for one ISA."""
    options = options or CompileOptions()
    isa = select_isa(options.isa)
    stored = StoredProgram.of(program)
    constants = {b.name: np.asarray(b.data) for b in program.constants}

    def copied() -> Program:
        # Selection and planning change the program that they are given.
        return parse_program(stored.text, constants)

    return stored, [_obtain(copied, stored.identity, isa, options)]


def load_executable(path: Path, options: CompileOptions | None = None, trust: bool = False) -> Executable:
    """Load model.qglow for this host.

    With `trust` object code in the file is run where it fits the ISA and the version; else the whole
    program in the file is checked, and code comes from the user's cache or is compiled.
    Raises ArtefactError, UsageError.
    """
    options = options or CompileOptions()
    isa = select_isa(options.isa)
    threads = choose_threads(options.threads)
    artefact = load_artefact(path)
    variant = _variant(artefact, isa, options, trust)

    def planned() -> Program:
        return variant.program(artefact.constants())

    return Executable(variant.signature, variant.compiled, load(variant.compiled), threads, planned)


def _variant(artefact: Artefact, isa: Isa, options: CompileOptions, trust: bool) -> CodeVariant:
    stored = artefact.variant(isa.name) if trust else None
    if stored is not None:
        return stored
    artefact.check()
    return _obtain(artefact.program, artefact.identity, isa, options)


def _obtain(program: Callable[[], Program], identity: str, isa: Isa, options: CompileOptions) -> CodeVariant:
    """Code of a program, which is asked for only where it has to be compiled."""
    if not options.cache:
        return _compile(program(), isa, NO_CHOICES, options.threads)
    choices = saved_choices(isa)
    parts = [identity, compiler_version(), isa.name, *(text for pair in choices.items() for text in pair)]
    key = sha256_hex("\0".join(parts).encode())
    path = default_folder() / "programs" / f"{key}.qglow"
    found = _from_cache(path, identity, isa)
    if found is None:
        found = _compile(program(), isa, choices, options.threads)
        _to_cache(path, identity, found)
    return found


def _from_cache(path: Path, identity: str, isa: Isa) -> CodeVariant | None:
    if not path.exists():
        return None
    try:
        return load_code(path, identity, isa.name)
    except ArtefactError:  # a damaged entry is as good as none: it is compiled anew
        return None


def _to_cache(path: Path, identity: str, variant: CodeVariant) -> None:
    try:
        save_code(path, identity, variant)
    except InputFileError:  # a cache that cannot be written costs time, nothing else
        return


def _compile(program: Program, isa: Isa, choices: Choices, threads: int | None) -> CodeVariant:
    select_kernels(program, isa, choices)
    plan_memory(program)
    return CodeVariant.of(program, compile_program(program, isa, processes=choose_processes(threads)))
