"""LLVM text to optimised machine code for one ISA."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import binding

from qglow.core.errors import CodegenError
from qglow.kernels.isa import Isa

SPEED_LEVEL = 2


@functools.cache
def _target(triple: str) -> Any:
    """LLVM's target. All others are left alone where the host's will do: each costs memory."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    try:
        return binding.Target.from_triple(triple)
    except RuntimeError:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    return binding.Target.from_triple(triple)


def target_machine(isa: Isa) -> Any:
    """A new target machine (LLVM's just-in-time engines take ownership of theirs)."""
    return _target(isa.triple).create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=SPEED_LEVEL, reloc="pic", codemodel="default"
    )


def optimise(text: str, isa: Isa) -> tuple[Any, Any]:
    """The optimised module and its target machine. Raises CodegenError where LLVM refuses.

    The vectorizers stay off: kernels are vector code already, and what is scalar in them is
    meant to be.
    """
    machine = target_machine(isa)
    try:
        module = binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM refuses the code for {isa.name}: {error}") from error
    module.triple = isa.triple
    module.data_layout = str(machine.target_data)
    tuning = binding.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    tuning.loop_interleaving = False
    tuning.loop_unrolling = False
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def object_code(text: str, isa: Isa) -> bytes:
    """An object file of optimised code. Raises CodegenError."""
    module, machine = optimise(text, isa)
    return bytes(machine.emit_object(module))


def assembly(text: str, isa: Isa) -> str:
    """Assembly of optimised code, also for targets that the host cannot run."""
    module, machine = optimise(text, isa)
    return str(machine.emit_assembly(module))


def llvm_version() -> str:
    """The version of the LLVM that compiles."""
    return ".".join(str(part) for part in binding.llvm_version_info)
