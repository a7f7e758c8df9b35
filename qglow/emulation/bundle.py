"""Bundles as executables: in this process, or in an emulator of their processor."""

from __future__ import annotations

import ctypes
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import NoReturn

import numpy as np

from qglow.bundles.code import OK, PROCESSOR
from qglow.bundles.interface import TensorRole
from qglow.bundles.library import read_library
from qglow.bundles.texts import is_wasm
from qglow.codegen.jit import check_host, link
from qglow.codegen.memory import aligned, aligned_bytes
from qglow.codegen.weights import READ_SLACK
from qglow.core.errors import ArtefactError, UsageError
from qglow.core.types import Array
from qglow.emulation.bundle_base import Bundle, from_caller, is_flipped, to_caller
from qglow.emulation.machines import EMULATORS, SOURCES
from qglow.emulation.manifest import Manifest, read_manifest
from qglow.emulation.programs import build, executed, run
from qglow.emulation.sources_compiled import compile_sources
from qglow.emulation.wasm import WasmBundle
from qglow.runtime.executable import Executable
from qglow.runtime.streaming import checked_states
from qglow.targets.capabilities import machine
from qglow.targets.protocol import Target
from qglow.targets.registry import find_target

_SIGN = np.uint8(0x80)

_COUNTED = 2
"""Flag of the emulated program that makes it run the model alone."""
_TURNS = 10


class BundleExecutable(Executable):
    """A bundle as an executable, with what is known of its code.

    manifest: of the bundle.
    """

    def __init__(self, manifest: Manifest, loaded: Bundle) -> None:
        super().__init__(manifest.signature, loaded, _no_program)
        self.manifest, self._bundle = manifest, loaded

    def reset(self, initial: Mapping[str, Array] | None = None) -> None:
        """Begin a new stream: states become zeros (reals, if they are quantized), or what `initial` has.

        Raises UsageError for arrays of unknown names, or of other types than the states.
        """
        self._bundle.reset(checked_states(initial or {}, self.state))

    def fork(self) -> BundleExecutable:
        """Another stream that goes on from a copy of the states; it shares code and weights."""
        return BundleExecutable(self.manifest, self._bundle.fork())

    def instructions(self) -> int:
        """Instructions that a call executes, counted on inputs of zeros.

        Raises UsageError where the bundle runs in no emulator that counts.
        """
        if isinstance(self._bundle, (EmulatedBundle, WasmBundle)):
            return self._bundle.instructions()
        raise UsageError(f"instructions of '{self.manifest.target}' are not counted: no emulator runs it")


def load_bundle(path: str | Path) -> BundleExecutable:
    """Load the bundle in a folder: in this process where the host runs its target, else in an emulator.

    It is called as any executable. Its code runs as it is, so load only bundles that you trust. Raises
    ArtefactError for what is no bundle or damaged, UsageError where there is no emulator of the target.
    """
    manifest = read_manifest(Path(path))
    target = find_target(manifest.target)
    if manifest.sources:
        return BundleExecutable(manifest, SourceBundle(manifest))
    if target.refusal() is None:
        return BundleExecutable(manifest, HostBundle(manifest))
    if manifest.module.exists():
        return BundleExecutable(manifest, WasmBundle(manifest))
    if manifest.target not in EMULATORS:
        raise UsageError(
            f"{path} is for '{manifest.target}', which has no emulator, and this host cannot run it "
            f"({target.refusal()})"
        )
    return BundleExecutable(manifest, EmulatedBundle(manifest))


def runs_bundles_of(target: Target) -> bool:
    """Whether `load_bundle` runs bundles of a target that this host cannot call: in an emulator of the
    processor, as a module of WebAssembly, or as C sources that the compiler of the system builds."""
    name, processor = target.description.name, target.machine
    return name in EMULATORS or name == SOURCES or (processor is not None and is_wasm(processor))


def _no_program() -> NoReturn:
    raise ArtefactError("a bundle holds code alone: its program is in the model that it was made of")


class CalledBundle(Bundle):
    """A bundle whose code runs in this process. Satisfies `Loaded`."""

    def __init__(self, manifest: Manifest, addresses: Mapping[str, int], owner: object) -> None:
        """Check the bundle. addresses: of its functions, as long as `owner` lives.

        Raises ArtefactError where `check` refuses, UsageError for the wrong processor.
        """
        super().__init__(manifest)
        prefix, self._owner = manifest.prefix, owner
        self._weights = aligned(np.frombuffer(_weights(manifest), np.uint8))
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(addresses[f"{prefix}_run"])
        check = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
        arena = self._arena()
        found = check(addresses[f"{prefix}_check_as"])(
            arena.ctypes.data, self._weights.ctypes.data, manifest.interface
        )
        if found == PROCESSOR:
            raise UsageError(f"this host cannot run code for '{manifest.target}'")
        if found != OK:
            raise ArtefactError(f"{manifest.folder} is damaged: its check returns {found}")

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run once. Calls from several threads are safe."""
        with self._lock:
            self.bind(arrays)()

    def bind(self, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A call on these arrays in an arena of its own; it must not run in two threads at once."""
        memory = {**self._state, **arrays}
        tensors = self._manifest.tensors
        seen = {t.name: np.empty_like(memory[t.name]) if is_flipped(t) else memory[t.name] for t in tensors}
        io = (ctypes.c_void_p * max(1, len(tensors)))(*(seen[t.name].ctypes.data for t in tensors))
        arena, weights = self._arena(), self._weights

        def call() -> None:
            for tensor in tensors:
                if is_flipped(tensor) and tensor.role is TensorRole.INPUT:
                    _flip(memory[tensor.name], seen[tensor.name])
            self._run(arena.ctypes.data, weights.ctypes.data, ctypes.addressof(io))
            for tensor in tensors:
                if is_flipped(tensor) and tensor.role is TensorRole.OUTPUT:
                    _flip(seen[tensor.name], memory[tensor.name])

        return call

    def _arena(self) -> Array:
        return aligned_bytes(self._manifest.arena_bytes + READ_SLACK)


class HostBundle(CalledBundle):
    """A bundle with object code for this processor."""

    def __init__(self, manifest: Manifest) -> None:
        """Link the code. Raises what `CalledBundle` and `check_host` do."""
        target, prefix = machine(find_target(manifest.target)), manifest.prefix
        check_host(target)
        members = read_library(manifest.library.read_bytes())
        names = f"{prefix}_code.o", f"{prefix}_check.o"
        wanted = [members[name] for name in names if name in members]
        linked = link(wanted, target, [f"{prefix}_run", f"{prefix}_check_as"])
        super().__init__(manifest, linked.addresses, linked)


class SourceBundle(CalledBundle):
    """A bundle of C sources, which the compiler of this system builds."""

    def __init__(self, manifest: Manifest) -> None:
        """Compile and load it. Raises what `CalledBundle` and `compile_sources` do."""
        library = compile_sources(manifest)
        names = (f"{manifest.prefix}_{part}" for part in ("run", "check_as"))
        addresses = {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names}
        super().__init__(manifest, addresses, library)


class EmulatedBundle(Bundle):
    """A bundle whose code runs in an emulator, once for each call. Satisfies `Loaded`."""

    def __init__(self, manifest: Manifest) -> None:
        """Build the program that runs it, and its self-test. Raises what `build` and `run` do."""
        super().__init__(manifest)
        self._emulator = EMULATORS[manifest.target]
        self._folder = tempfile.TemporaryDirectory(prefix="qglow-bundle-")
        run(self._program, self._emulator, struct.pack("<II", 0, 1) + self._states({}))

    @cached_property
    def _program(self) -> Path:
        manifest, result = self._manifest, Path(self._folder.name) / "program"
        tensors = sum(tensor.byte_size + -tensor.byte_size % 8 for tensor in manifest.tensors)
        sizes = manifest.selftest_bytes, tensors
        build(manifest.folder, manifest.prefix, *sizes, self._emulator, result)
        return result

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run once. Calls from several threads run one after the other."""
        inputs, outputs, states = (self._manifest.of_role(role) for role in TensorRole)
        given = b"".join(from_caller(tensor, arrays[tensor.name]) for tensor in inputs)
        with self._lock:
            head = struct.pack("<II", 1, 0) + self._states(arrays)
            result = run(self._program, self._emulator, head + given)
            memory = {**self._state, **arrays}
            wanted = sum(tensor.byte_size for tensor in (*outputs, *states))
            if len(result) != wanted:
                raise ArtefactError(f"the emulated program wrote {len(result)} bytes instead of {wanted}")
            place = 0
            for tensor in (*outputs, *states):
                to_caller(tensor, result[place : place + tensor.byte_size], memory[tensor.name])
                place += tensor.byte_size

    def instructions(self) -> int:
        """Instructions that a call executes, counted on inputs of zeros."""
        once, often = (
            executed(self._program, self._emulator, struct.pack("<II", turns, _COUNTED))
            for turns in (1, 1 + _TURNS)
        )
        return (often - once) // _TURNS

    def bind(self, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A call on these arrays."""
        return lambda: self.run(arrays)

    def _states(self, arrays: Mapping[str, Array]) -> bytes:
        memory = {**self._state, **arrays}
        return b"".join(memory[tensor.name].tobytes() for tensor in self._manifest.of_role(TensorRole.STATE))


def _flip(source: Array, result: Array) -> None:
    np.bitwise_xor(source.view(np.uint8), _SIGN, out=result.view(np.uint8))


def _weights(manifest: Manifest) -> bytes:
    """The weights as the file has them. Raises ArtefactError for another size."""
    data = manifest.weights.read_bytes()
    if len(data) != manifest.weights_bytes:
        raise ArtefactError(
            f"{manifest.weights} has {len(data)} bytes, and should have {manifest.weights_bytes}"
        )
    return data
