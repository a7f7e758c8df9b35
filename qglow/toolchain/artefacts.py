"""Artefacts made and loaded: code is taken from where it may be trusted, else compiled.

Code that lies in an artefact runs only for a caller who trusts the file. Otherwise the
program's text is compiled once, and the result is kept in the user's own cache, under the
identity of the program, the compiler's version and the instruction set.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from qglow.codegen.cache import default_folder
from qglow.codegen.compiler import CompiledProgram, compile_program
from qglow.codegen.jit import load
from qglow.core.errors import ArtefactError, InputFileError
from qglow.core.files import sha256_hex
from qglow.instructions.plan import plan_memory
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program, print_program
from qglow.kernels.isa import Isa, select_isa
from qglow.kernels.select import select_kernels
from qglow.runtime.artefact import (
    CodeVariant,
    compiler_version,
    load_artefact,
    program_identity,
    save_artefact,
)
from qglow.runtime.cores import choose_threads
from qglow.runtime.executable import Executable
from qglow.toolchain.compilation import CompileOptions


def write_artefact(path: Path, program: Program, options: CompileOptions | None = None) -> None:
    """Compile a lowered program (which stays as it is) for one ISA and write model.qglow."""
    options = options or CompileOptions()
    isa = select_isa(options.isa)
    save_artefact(path, program, [_obtain(program, program_identity(program), isa, options.cache)])


def load_executable(path: Path, options: CompileOptions | None = None, trust: bool = False) -> Executable:
    """Load model.qglow for this host.

    With `trust` object code in the file is run where it fits the ISA and the version; else it
    comes from the user's cache or is compiled. Raises ArtefactError, UsageError.
    """
    options = options or CompileOptions()
    isa = select_isa(options.isa)
    artefact = load_artefact(path)
    stored = artefact.code.get(isa.name)
    if trust and stored is not None and stored.is_current:
        variant = stored
    else:
        variant = _obtain(artefact.program, artefact.identity, isa, options.cache)
    threads = choose_threads(options.threads)
    return Executable(variant.program, variant.compiled, load(variant.compiled), threads)


def _obtain(program: Program, identity: str, isa: Isa, cached: bool) -> CodeVariant:
    if not cached:
        return _compile(program, isa)
    key = sha256_hex("\0".join((identity, compiler_version(), isa.name)).encode())
    path = default_folder() / "programs" / f"{key}.qglow"
    found = _from_cache(path, identity, isa)
    if found is None:
        found = _compile(program, isa)
        _to_cache(path, program, found)
    return found


def _from_cache(path: Path, identity: str, isa: Isa) -> CodeVariant | None:
    if not path.exists():
        return None
    try:
        artefact = load_artefact(path)
    except ArtefactError:  # a damaged entry is as good as none: it is compiled anew
        return None
    found = artefact.code.get(isa.name)
    return found if artefact.identity == identity and found is not None and found.is_current else None


def _to_cache(path: Path, program: Program, variant: CodeVariant) -> None:
    try:
        save_artefact(path, program, [variant])
    except InputFileError:  # a cache that cannot be written costs time, nothing else
        return


def _compile(program: Program, isa: Isa) -> CodeVariant:
    # The text is the copy: selection and planning change the program that they are given.
    planned = parse_program(print_program(program), {b.name: np.asarray(b.data) for b in program.constants})
    select_kernels(planned, isa)
    plan_memory(planned)
    compiled: CompiledProgram = compile_program(planned, isa)
    return CodeVariant(planned, compiled, compiler_version())
