"""Artefacts made and loaded: code is taken from where it may be trusted, else compiled.

Code that lies in an artefact runs only for a caller who trusts the file. Otherwise the
program's text is compiled once, and the result is kept in the user's own cache, under the
identity of the program, the compiler's version and the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from qglow.codegen.cache import default_folder
from qglow.core.errors import ArtefactError, InputFileError
from qglow.core.files import sha256_hex
from qglow.core.types import Array
from qglow.host.tail import HostedTail
from qglow.instructions.program import Program
from qglow.instructions.text import parse_program
from qglow.kernels.selection.choice import NO_CHOICES, Choices
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
from qglow.runtime.tailed import with_tail
from qglow.runtime.variant import CodeVariant
from qglow.targets.protocol import Emission, RunningTarget
from qglow.targets.registry import select_target
from qglow.toolchain.options import CompileOptions
from qglow.toolchain.planning import plan_within_limit

Found = TypeVar("Found")


def write_artefact(
    path: Path, program: Program, options: CompileOptions | None = None, tail: HostedTail | None = None
) -> None:
    """Compile a lowered program (which stays as it is) for one target and write model.qglow."""
    save_artefact(path, *make_artefact(program, options, tail))


def make_artefact(
    program: Program, options: CompileOptions | None = None, tail: HostedTail | None = None
) -> tuple[StoredProgram, list[CodeVariant]]:
    """Make what `save_artefact` writes of a lowered program (left as it is), compiled for one target.

    tail: nodes that onnxruntime runs behind it.
    A target that makes no object code adds none. Raises UsageError for one that the host cannot run.
    """
    options = options or CompileOptions()
    stored, code = _made(program, select_target(options.isa), options)
    return replace(stored, tail=tail), [code] if code.objects else []


def obtain_executable(program: Program, options: CompileOptions | None = None) -> Executable:
    """Load a lowered program (which this changes) that `make_artefact` is going to write.

    Where the user's cache may be used, it is compiled once for both. Raises UsageError for a target that the
    host cannot run.
    """
    options = options or CompileOptions()
    target, constants = select_target(options.isa), _constants(program)
    identity = StoredProgram.of(program).identity
    variant = _obtain(lambda: program, identity, target, options)
    return target.load(variant, choose_threads(options.threads), lambda: variant.program(constants))


def known_executable(program: Program, options: CompileOptions) -> Executable | None:
    """Load a lowered program (left as it is) that `obtain_executable` has left in the user's cache, or None.

    Raises UsageError for a target that the host cannot run.
    """
    target = select_target(options.isa)
    found = CachePlace.of(StoredProgram.of(program).identity, target).read() if options.cache else None
    if found is None:
        return None
    return target.load(found, choose_threads(options.threads), lambda: found.program(_constants(program)))


def load_executable(path: Path, options: CompileOptions | None = None, trust: bool = False) -> Executable:
    """Load model.qglow for this host.

    With `trust` object code in the file is run where it fits the target and the version; else the whole
    program in the file is checked, and code comes from the user's cache or is compiled.
    Raises ArtefactError, and UsageError, also where onnxruntime is missing for nodes of the file.
    """
    options = options or CompileOptions()
    target = select_target(options.isa)
    threads = choose_threads(options.threads)
    artefact = load_artefact(path)
    variant = _variant(artefact, target, options, trust)

    def planned() -> Program:
        return variant.program(artefact.constants())

    return with_tail(target.load(variant, threads, planned), artefact.tail())


def _made(
    program: Program, target: RunningTarget, options: CompileOptions
) -> tuple[StoredProgram, CodeVariant]:
    stored = StoredProgram.of(program)

    def copied() -> Program:
        # Selection and planning change the program that they are given.
        return parse_program(stored.text, _constants(program))

    return stored, _obtain(copied, stored.identity, target, options)


def _constants(program: Program) -> dict[str, Array]:
    return {b.name: np.asarray(b.data) for b in program.all_constants()}


def _variant(artefact: Artefact, target: RunningTarget, options: CompileOptions, trust: bool) -> CodeVariant:
    stored = artefact.variant(target.description.name, target.version()) if trust else None
    if stored is not None:
        return stored
    artefact.check()
    return _obtain(artefact.program, artefact.identity, target, options)


def _obtain(
    program: Callable[[], Program], identity: str, target: RunningTarget, options: CompileOptions
) -> CodeVariant:
    """Code of a program, which is asked for only where it has to be compiled."""
    if not options.cache:
        return _compile(program(), target, NO_CHOICES, options)
    place = CachePlace.of(identity, target)
    found = place.read()
    if found is None:
        found = _compile(program(), target, place.choices, options)
        _to_cache(place.path, identity, found)
    return found


@dataclass(frozen=True)
class CachePlace:
    """Place of the user's cache for the code of a program and a target that has these measured choices."""

    identity: str
    target: str
    version: str
    choices: Choices

    @staticmethod
    def of(identity: str, target: RunningTarget) -> CachePlace:
        return CachePlace(identity, target.description.name, target.version(), target.choices())

    @property
    def path(self) -> Path:
        choices = (text for pair in self.choices.items() for text in pair)
        key = sha256_hex("\0".join([self.identity, self.version, self.target, *choices]).encode())
        return default_folder() / "programs" / f"{key}.qglow"

    def read(self) -> CodeVariant | None:
        """The code, None if there is none. A damaged entry is as good as none: it is compiled anew."""
        return self.found(lambda path: load_code(path, self.identity, self.target, self.version))

    def found(self, load: Callable[[Path], Found | None]) -> Found | None:
        """Result of `load` for the entry; None where there is none, or it is damaged."""
        if not self.path.exists():
            return None
        try:
            return load(self.path)
        except ArtefactError:
            return None


def _to_cache(path: Path, identity: str, variant: CodeVariant) -> None:
    if not variant.objects:  # planning is all that was done, and that takes no time
        return
    try:
        save_code(path, identity, variant)
    except InputFileError:  # a cache that cannot be written costs time, nothing else
        return


def _compile(
    program: Program, target: RunningTarget, choices: Choices, options: CompileOptions
) -> CodeVariant:
    target.select(program, choices)
    plan_within_limit(program, target)
    # The whole program is what is cached, not its object files once more.
    return target.emit(program, Emission(options.cache, False, choose_processes(options.threads)))
