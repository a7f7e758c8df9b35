"""The processor that this process runs on."""

from __future__ import annotations

import functools

from llvmlite import binding

from qglow.codegen.arm_features import arm_features
from qglow.kernels.emit.target import VectorTarget


@functools.cache
def host_processor() -> str:
    """Architecture of the processor, as in the first part of a target triple: "x86_64", "aarch64"."""
    name = str(binding.get_process_triple()).split("-")[0]
    return "aarch64" if name == "arm64" else name  # macOS


@functools.cache
def host_features() -> frozenset[str]:
    """Features of the processor, by LLVM's names."""
    known = frozenset(name for name, present in binding.get_host_cpu_features().items() if present)
    return known | arm_features() if host_processor() == "aarch64" else known


def lacking(target: VectorTarget) -> str | None:
    """Reason why the processor cannot run code of an ISA, in a few words; None if it can."""
    wanted = target.triple.split("-")[0]
    if host_processor() != wanted:
        return f"it is for {wanted}, the host is {host_processor()}"
    missing = sorted(target.requires - host_features())
    return f"the host lacks {', '.join(missing)}" if missing else None


@functools.cache
def host_cpu() -> str:
    """LLVM's name of this processor."""
    return str(binding.get_host_cpu_name())
