"""Writing of a bundle: a planned program as a C library with its header, weights and self-test."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from qglow.bundles.code import (
    Vectors,
    check_text,
    crc32,
    program_text,
    reset_text,
    selftest_text,
    table_text,
    weights_text,
)
from qglow.bundles.identifiers import identifier
from qglow.bundles.interface import VERSION, BundleTensor, Interface
from qglow.bundles.library import write_library
from qglow.bundles.objects import code_bytes, function_bytes
from qglow.bundles.texts import is_wasm, texts
from qglow.bundles.zig import link_module
from qglow.codegen.module import ModuleBuilder
from qglow.codegen.parallel import compile_apart
from qglow.codegen.weights import READ_SLACK
from qglow.core.files import sha256_hex, write_atomically
from qglow.core.printable import printable
from qglow.core.types import Array, TensorType
from qglow.core.version import __version__
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.program import Program
from qglow.kernels.emit.target import VectorTarget
from qglow.numerics.quantize import as_unsigned
from qglow.runtime.signature import Signature
from qglow.runtime.streaming import zero_element

MANIFEST_VERSION = 1
_TOLERANCE = 2.0**-13
"""Largest difference of a float output, as a share of its largest magnitude: less than a step of int8."""


def write_bundle(
    program: Program,
    target: VectorTarget,
    folder: Path,
    threads: int = 1,
    states: Mapping[str, str] | None = None,
) -> None:
    """Write a program whose kernels are selected and whose memory is planned into an empty folder.

    threads: of the caller's for which work is divided into parts. states: inputs that are states to the
    caller, each with the output that the next run reads there.

    The same program gives the same bytes. Raises UsageError for states that the program does not have,
    CodegenError where LLVM makes no code of it, InputFileError where a file cannot be written.
    """
    builder = ModuleBuilder(program, target, alone=True)
    weights = builder.weights()
    prefix = identifier(program.name, "model")
    signature, sizes = Signature.of(program), (program.arena_size or 0, len(weights))
    whole = Interface.of(prefix, signature, *sizes, target.activation_bias, states)
    code, parts = program_text(builder, replace(whole, threads=threads))
    interface = replace(whole, threads=threads, parts=parts)
    described = TargetFacts(target.name, target.triple, target.cpu, target.features)
    fingerprint, digest = interface_fingerprint(interface, described), crc32(weights)
    vectors = make_vectors(program, states or {})
    modules = {
        f"{prefix}_code.o": code,
        f"{prefix}_weights.o": weights_text(target, interface, weights),
        f"{prefix}_tensors.o": table_text(target, interface),
        f"{prefix}_selftest.o": selftest_text(target, interface, as_callers_see(interface, vectors)),
    }
    if interface.states:
        modules[f"{prefix}_reset.o"] = reset_text(target, interface)
    objects = dict(zip(modules, compile_apart(list(modules.values()), target), strict=True))
    check = check_text(target, interface, fingerprint, digest)
    objects[f"{prefix}_check.o"] = compile_apart([check], target.base)[0]
    written: dict[str, bytes] = {
        name: text.encode() for name, text in texts(interface, program.name, target, fingerprint).items()
    }
    written[f"lib{prefix}.a"] = write_library(objects)
    written[f"{prefix}.weights.bin"] = weights.tobytes()
    if is_wasm(target):
        written[f"{prefix}.wasm"] = _module(written[f"lib{prefix}.a"], interface)
    manifest = manifest_of(interface, described, program, written, fingerprint, objects)
    written[f"{prefix}.json"] = (json.dumps(manifest, indent=2, ensure_ascii=True) + "\n").encode()
    for name, content in written.items():
        write_atomically(folder / name, content)


def _module(library: bytes, interface: Interface) -> bytes:
    """The library as a module of WebAssembly."""
    parts = ["run", "check_as", "selftest", "weights", "tensors", *(["reset"] if interface.states else [])]
    exports = [f"{interface.prefix}_{part}" for part in parts]
    with tempfile.TemporaryDirectory(prefix="qglow-") as folder:
        archive, result = Path(folder) / "library.a", Path(folder) / "module.wasm"
        archive.write_bytes(library)
        link_module(archive, exports, result)
        return result.read_bytes()


def make_vectors(program: Program, states: Collection[str] = ()) -> Vectors:
    """Inputs for a program, and what the interpreter makes of them; int8 as int8.

    Floats are normal random numbers, int8 activations random steps, and all other integers 0, which is an
    index in any range. states: inputs that stand for 0, as a stream begins.
    """
    random = np.random.default_rng(0)
    inputs = {
        buffer.name: np.full(buffer.type.shape, zero_element(buffer.type))
        if buffer.name in states
        else _random(buffer.type, random)
        for buffer in program.inputs()
    }
    with np.errstate(all="ignore"):
        outputs = ArenaInterpreter(program).run(inputs)
    tolerances = {name: _tolerance(array) for name, array in outputs.items() if array.dtype == np.float32}
    return Vectors(inputs, outputs, tolerances)


def _random(kind: TensorType, random: np.random.Generator) -> Array:
    dtype = kind.element.dtype
    if dtype == np.float32:
        return random.standard_normal(kind.shape, np.float32)
    if kind.quantization is not None:
        limits = np.iinfo(dtype)
        return random.integers(limits.min, limits.max, kind.shape, dtype, endpoint=True)
    return np.zeros(kind.shape, dtype)


def _tolerance(expected: Array) -> float:
    finite = np.abs(expected[np.isfinite(expected)])
    return float(np.float32(_TOLERANCE * finite.max())) if finite.size else 0.0


def as_callers_see(interface: Interface, vectors: Vectors) -> Vectors:
    """Vectors of a program as C has them: int8 that is uint8 to callers is uint8."""
    shifted = {name for t in interface.tensors if t.is_shifted for name in (t.name, t.output)}

    def seen(arrays: Mapping[str, Array]) -> dict[str, Array]:
        return {name: as_unsigned(array) if name in shifted else array for name, array in arrays.items()}

    return Vectors(seen(vectors.inputs), seen(vectors.outputs), vectors.tolerances)


@dataclass(frozen=True)
class TargetFacts:
    """The target of a bundle as manifests describe it; C sources are for no processor."""

    name: str
    triple: str = ""
    cpu: str = ""
    features: str = ""


def interface_fingerprint(interface: Interface, target: TargetFacts) -> int:
    """CRC-32 of all that a header depends on."""
    sizes = interface.arena, interface.weights, interface.selftest_arena, interface.parts
    return fingerprint_of(__version__, target.name, interface.prefix, sizes, interface.tensors)


def fingerprint_of(
    version: str,
    target: str,
    prefix: str,
    sizes: tuple[int, int, int, tuple[int, ...]],
    tensors: Sequence[BundleTensor],
) -> int:
    """CRC-32 of what a header says. version: of qglow. sizes: bytes of the arena, of the weights and of the
    arena of the self-test, and the parts of every step."""
    listed = [(t.name, t.field, str(t.kind), t.role.value) for t in tensors]
    return zlib.crc32(
        repr((VERSION, version, target, prefix, sizes, listed)).encode("utf-8", "backslashreplace")
    )


def manifest_of(
    interface: Interface,
    target: TargetFacts,
    program: Program,
    written: Mapping[str, bytes],
    fingerprint: int,
    objects: Mapping[str, bytes] | None = None,
) -> dict[str, object]:
    """The manifest of a bundle with these files. objects: members of its library, None for one of sources."""
    code = None if objects is None else objects[f"{interface.prefix}_code.o"]
    return {
        "format": MANIFEST_VERSION,
        "qglow": __version__,
        "model": printable(program.name),
        "prefix": interface.prefix,
        "target": target.name,
        "triple": target.triple,
        "cpu": target.cpu,
        "features": target.features,
        "interface": fingerprint,
        "arena_bytes": interface.arena,
        "selftest_bytes": interface.selftest_arena,
        "weights_bytes": interface.weights,
        "code_bytes": 0 if code is None else code_bytes(code),
        "kernel_bytes": {} if code is None else function_bytes(code),
        "threads": interface.threads,
        "parts": list(interface.parts),
        "slack_bytes": READ_SLACK,
        "tensors": [_tensor_entry(tensor) for tensor in interface.tensors],
        "members": {name: len(content) for name, content in (objects or {}).items()},
        "sha256": {name: sha256_hex(content) for name, content in sorted(written.items())},
    }


def _tensor_entry(tensor: BundleTensor) -> dict[str, object]:
    return {
        "name": tensor.name,
        "field": tensor.field,
        "role": tensor.role.value,
        "type": str(tensor.kind),
        "element": str(tensor.element.value),
        "shape": list(tensor.kind.shape),
        "bytes": tensor.byte_size,
        "scale": tensor.scale,
        "zero_point": tensor.zero_point,
        **({"output": tensor.output} if tensor.output else {}),
    }
