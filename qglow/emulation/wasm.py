"""Bundles of WebAssembly in this process, by the package wasmtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qglow.bundles.code import OK
from qglow.bundles.interface import BundleTensor, TensorRole
from qglow.codegen.memory import ALIGNMENT
from qglow.core.errors import ArtefactError, UsageError
from qglow.core.types import Array
from qglow.emulation.bundle_base import Bundle, from_caller, to_caller
from qglow.emulation.manifest import Manifest

_PAGE = 65536
_FUEL = 1 << 62
"""More instructions than any call executes; wasmtime takes one unit of fuel for each (none for blocks)."""


class WasmModule:
    """A module of WebAssembly that needs nothing from outside, with memory behind its own data."""

    def __init__(self, path: Path, counts: bool = False) -> None:
        """Compile it; `counts`: so that `counted` tells its instructions.

        Raises UsageError without wasmtime, ArtefactError for what is no such module.
        """
        try:
            import wasmtime
        except ImportError as error:
            raise UsageError("running WebAssembly needs wasmtime: pip install 'qglow[emulation]'") from error
        config = wasmtime.Config()
        config.consume_fuel = counts
        engine = wasmtime.Engine(config)
        self._store: Any = wasmtime.Store(engine)
        if counts:
            self._store.set_fuel(_FUEL)
        try:
            module = wasmtime.Module.from_file(engine, str(path))
            instance = wasmtime.Instance(self._store, module, [])
        except wasmtime.WasmtimeError as error:
            raise ArtefactError(f"{path} is no module that runs alone: {error}") from error
        self._exports: Any = instance.exports(self._store)
        self._memory: Any = self._exports["memory"]
        self._end = self.constant("__heap_base")

    def constant(self, name: str) -> int:
        """The value of an exported global, such as an address."""
        return int(self._exports[name].value(self._store))

    def call(self, name: str, *arguments: int) -> Any:
        """Call an exported function."""
        return self._exports[name](self._store, *arguments)

    def counted(self, name: str, *arguments: int) -> int:
        """Call an exported function and return the number of instructions that it executed."""
        self._store.set_fuel(_FUEL)
        self.call(name, *arguments)
        return _FUEL - int(self._store.get_fuel())

    def take(self, size: int) -> int:
        """The address of `size` new bytes."""
        place = self._end + -self._end % ALIGNMENT
        self._end = place + size
        missing = self._end - self._memory.data_len(self._store)
        if missing > 0:
            self._memory.grow(self._store, -(-missing // _PAGE))
        return place

    def write(self, data: bytes, place: int) -> None:
        """Write bytes at an address."""
        self._memory.write(self._store, data, place)

    def read(self, place: int, size: int) -> bytes:
        """Read bytes at an address."""
        return bytes(self._memory.read(self._store, place, place + size))


class WasmBundle(Bundle):
    """A bundle of WebAssembly. Satisfies `Loaded`."""

    def __init__(self, manifest: Manifest) -> None:
        """Compile, check and test it. Raises what `WasmModule` does, and ArtefactError."""
        super().__init__(manifest)
        prefix = manifest.prefix
        self._module = WasmModule(manifest.module)
        self._weights = self._module.constant(f"{prefix}_weights")
        self._arena = self._module.take(manifest.selftest_bytes)
        self._places = [self._module.take(tensor.byte_size) for tensor in manifest.tensors]
        self._io = self._module.take(4 * len(self._places))
        self._module.write(np.array(self._places, np.uint32).tobytes(), self._io)
        memory, number = (self._arena, self._weights), _signed(manifest.interface)
        found = self._module.call(f"{prefix}_check_as", *memory, number)
        if found != OK:
            raise ArtefactError(f"{manifest.folder} is damaged: its check returns {found}")
        if self._module.call(f"{prefix}_selftest", *memory):
            raise ArtefactError(f"{manifest.folder}: the self-test fails")

    def run(self, arrays: Mapping[str, Array]) -> None:
        """Run once. Calls from several threads run one after the other."""
        memory = {**self._state, **arrays}
        tensors = list(zip(self._manifest.tensors, self._places, strict=True))
        with self._lock:
            for tensor, place in tensors:
                if tensor.role is not TensorRole.OUTPUT:
                    self._module.write(from_caller(tensor, memory[tensor.name]), place)
            self._module.call(f"{self._manifest.prefix}_run", self._arena, self._weights, self._io)
            for tensor, place in tensors:
                if tensor.role is not TensorRole.INPUT:
                    self._give(tensor, place, memory[tensor.name])

    def instructions(self) -> int:
        """Instructions of WebAssembly that a call executes, counted on inputs of zeros."""
        module, prefix = WasmModule(self._manifest.module, counts=True), self._manifest.prefix
        arena = module.take(self._manifest.arena_bytes)
        places = [module.take(tensor.byte_size) for tensor in self._manifest.tensors]
        io = module.take(4 * len(places))
        module.write(np.array(places, np.uint32).tobytes(), io)
        return module.counted(f"{prefix}_run", arena, module.constant(f"{prefix}_weights"), io)

    def bind(self, arrays: Mapping[str, Array]) -> Callable[[], None]:
        """A call on these arrays."""
        return lambda: self.run(arrays)

    def _give(self, tensor: BundleTensor, place: int, array: Array) -> None:
        to_caller(tensor, self._module.read(place, tensor.byte_size), array)


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
