"""Compilation of LLVM text to object code. Imports llvmlite alone, so that a process for it starts fast.

As a script it reads modules from standard input and writes their object files to standard output, in
frames, until the input ends. Its arguments are a target's triple, processor, features, name of the calling
convention and relocation model.
"""

from __future__ import annotations

import functools
import struct
import sys
from typing import IO, Any

from llvmlite import binding

SPEED_LEVEL = 2
FRAME = struct.Struct("<BQ")
"""Header of a frame: GOOD or REFUSED, and the number of bytes that follow."""
GOOD, REFUSED = 71, 82


@functools.cache
def _target(triple: str) -> Any:
    """LLVM's target. Only the host's is initialised if that is enough, because each costs memory."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    binding.initialize_native_asmparser()
    try:
        return binding.Target.from_triple(triple)
    except RuntimeError:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
    return binding.Target.from_triple(triple)


def create_machine(triple: str, cpu: str, features: str, abi: str = "", relocation: str = "pic") -> Any:
    """A new target machine. abi: name of the calling convention, empty for that of the triple."""
    return _target(triple).create_target_machine(
        cpu=cpu, features=features, opt=SPEED_LEVEL, reloc=relocation, codemodel="default", abiname=abi
    )


def optimise(text: str, triple: str, machine: Any) -> Any:
    """Optimise a module. Raises RuntimeError if LLVM refuses.

    The vectorizers stay off: kernels are vector code already, and scalar code in them is deliberate.
    """
    module = binding.parse_assembly(text)
    module.verify()
    module.triple = triple
    module.data_layout = str(machine.target_data)
    tuning = binding.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    tuning.loop_interleaving = False
    tuning.loop_unrolling = False
    builder = binding.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return module


@functools.cache
def _machine(triple: str, *settings: str) -> Any:
    """The target machine of all modules that are compiled in this process."""
    return create_machine(triple, *settings)


def emit_object(text: str, triple: str, *settings: str) -> bytes:
    """An object file of optimised code, for the settings of `create_machine`. Raises RuntimeError."""
    machine = _machine(triple, *settings)
    return bytes(machine.emit_object(optimise(text, triple, machine)))


def send(stream: IO[bytes], kind: int, data: bytes) -> None:
    """Write a frame. Raises OSError if nobody reads."""
    stream.write(FRAME.pack(kind, len(data)))
    stream.write(data)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[int, bytes]:
    """Read a frame. Raises EOFError if the stream ends within it, ValueError if its kind is unknown."""
    kind, size = FRAME.unpack(_exactly(stream, FRAME.size))
    if kind not in (GOOD, REFUSED):
        raise ValueError(f"a frame cannot begin with {kind}")
    return kind, _exactly(stream, size)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise EOFError
    return data


def serve(source: IO[bytes], results: IO[bytes], triple: str, *settings: str) -> None:
    """Compile the modules of incoming frames until the input ends."""
    while True:
        try:
            _, text = receive(source)
        except EOFError:
            return
        try:
            kind, data = GOOD, emit_object(text.decode(), triple, *settings)
        except RuntimeError as error:
            kind, data = REFUSED, str(error).encode()
        send(results, kind, data)


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, *sys.argv[1:])
