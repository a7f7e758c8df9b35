"""LLVM text to optimised machine code for one ISA."""

from __future__ import annotations

from typing import Any

from llvmlite import binding

from qglow.codegen.emission import create_machine, emit_object
from qglow.codegen.emission import optimise as optimise_text
from qglow.core.errors import CodegenError
from qglow.kernels.isa import Isa


def target_machine(isa: Isa) -> Any:
    """A new target machine (LLVM's just-in-time engines take ownership of theirs)."""
    return create_machine(isa.triple, isa.cpu, isa.features)


def object_code(text: str, isa: Isa) -> bytes:
    """An object file of optimised code. Raises CodegenError."""
    try:
        return emit_object(text, isa.triple, isa.cpu, isa.features)
    except RuntimeError as error:
        raise refusal(isa, str(error)) from error


def assembly(text: str, isa: Isa) -> str:
    """Assembly of optimised code, also for targets that the host cannot run."""
    machine = target_machine(isa)
    try:
        return str(machine.emit_assembly(optimise_text(text, isa.triple, machine)))
    except RuntimeError as error:
        raise refusal(isa, str(error)) from error


def refusal(isa: Isa, said: str) -> CodegenError:
    """The error of code that LLVM does not take."""
    return CodegenError(f"LLVM refuses the code for {isa.name}: {said}")


def llvm_version() -> str:
    """The version of the LLVM that compiles."""
    return ".".join(str(part) for part in binding.llvm_version_info)
