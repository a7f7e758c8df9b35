"""Compilation of LLVM text to optimised machine code for one ISA."""

from __future__ import annotations

from typing import Any

from llvmlite import binding

from qglow.codegen.emission import create_machine, emit_object
from qglow.codegen.emission import optimise as optimise_text
from qglow.core.errors import CodegenError
from qglow.kernels.emit.target import VectorTarget


def target_machine(target: VectorTarget) -> Any:
    """A new target machine (LLVM's just-in-time engines take ownership of theirs)."""
    return create_machine(target.triple, *target.llvm_settings)


def object_code(text: str, target: VectorTarget) -> bytes:
    """An object file of optimised code. Raises CodegenError."""
    try:
        return emit_object(text, target.triple, *target.llvm_settings)
    except RuntimeError as error:
        raise refusal(target, str(error)) from error


def assembly(text: str, target: VectorTarget) -> str:
    """Assembly of optimised code, also for targets that the host cannot run."""
    machine = target_machine(target)
    try:
        return str(machine.emit_assembly(optimise_text(text, target.triple, machine)))
    except RuntimeError as error:
        raise refusal(target, str(error)) from error


def refusal(target: VectorTarget, said: str) -> CodegenError:
    """The error to raise for code that LLVM refuses."""
    return CodegenError(f"LLVM refuses the code for {target.name}: {said}")


def llvm_version() -> str:
    """The version of the LLVM that compiles."""
    return ".".join(str(part) for part in binding.llvm_version_info)
