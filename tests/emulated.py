"""Programs of the problem suite on emulated processors: many self-tests in one program."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from qglow.bundles.code import Vectors, program_text, selftest_text, weights_text
from qglow.bundles.interface import Interface
from qglow.bundles.library import write_library
from qglow.bundles.texts import is_wasm
from qglow.bundles.write import as_callers_see
from qglow.bundles.zig import link_module
from qglow.codegen.cache import ObjectCache, kernel_digest
from qglow.codegen.module import ModuleBuilder
from qglow.codegen.parallel import compile_apart
from qglow.core.errors import UsageError
from qglow.core.types import Array
from qglow.emulation.bundle import BundleExecutable
from qglow.emulation.machines import EMULATORS
from qglow.emulation.programs import build_program, emulator_version, run
from qglow.emulation.wasm import WasmModule
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.passes import optimize
from qglow.kernels.emit.target import VectorTarget
from qglow.lowering import lower
from qglow.runtime.signature import Signature
from qglow.targets.capabilities import machine
from qglow.targets.registry import find_target
from tests.session import shared
from tests.suite.problem import Problem

FLOAT_TOLERANCE = 1e-5
"""Largest error of float chains relative to the largest result: the interpreter rounds them otherwise."""
TOGETHER = 40
"""Most self-tests in one program: more do not fit the code memory of a board."""


def needs(target: str, version: int = 0) -> None:
    """Skip where the target has no emulator here, or one of a version before `version`."""
    if is_wasm(machine(find_target(target))):
        is_missing = find_spec("wasmtime") is None
    else:
        is_missing = shutil.which(EMULATORS[target].command[0]) is None
    if is_missing or find_spec("ziglang") is None:
        pytest.skip("no emulator of the processor is installed")
    if version and emulator_version(EMULATORS[target].command[0]) < version:
        pytest.skip(f"QEMU before {version} has a fault of its own in what this runs")


def counted(bundle: BundleExecutable) -> int:
    """Instructions of a call; skip where QEMU takes no plugins, as Debian's static one from version 10 on."""
    try:
        return bundle.instructions()
    except UsageError as error:
        if "takes no plugins" not in str(error):
            raise
        pytest.skip("QEMU that is linked statically counts no instructions")


@dataclass(frozen=True)
class SelfTest:
    """A problem as a self-test: its name, the LLVM texts, and the bytes of its arena."""

    name: str
    prefix: str
    texts: tuple[str, ...]
    arena: int


def make_self_test(
    name: str, problem: Problem, target_name: str, exact: Mapping[str, Array] | None = None
) -> SelfTest:
    """Lower a problem for a target; what the interpreter computes is what the self-test expects.

    exact: outputs to expect instead, in every bit.
    """
    target = find_target(target_name)
    described = machine(target)
    program = lower(problem.graph, target.backend)
    optimize(program)
    target.select(program)
    target.plan(program)
    builder = ModuleBuilder(program, described, alone=True)
    weights, prefix = builder.weights(), name.replace("-", "_")
    arena = program.arena_size or 0
    interface = Interface.of(prefix, Signature.of(program), arena, len(weights), described.activation_bias)
    tolerances: dict[str, float] = {}
    if exact is not None:
        outputs = dict(exact)
    else:
        with np.errstate(all="ignore"):
            outputs = ArenaInterpreter(program).run(problem.inputs)
    if not problem.exact and exact is None:
        for output, array in outputs.items():
            if array.dtype == np.float32:
                most = np.abs(array[np.isfinite(array)]).max(initial=0)
                tolerances[output] = float(np.float32(FLOAT_TOLERANCE * max(1, most)))
    vectors = as_callers_see(interface, Vectors(problem.inputs, outputs, tolerances))
    texts = (
        program_text(builder, interface)[0],
        weights_text(described, interface, weights),
        selftest_text(described, interface, vectors),
    )
    return SelfTest(f"{name} ({problem.name})", prefix, texts, interface.selftest_arena)


def wrong_outputs(tests: list[SelfTest], target_name: str, folder: Path) -> list[str]:
    """Names of the problems whose self-test fails under the emulator, with the number of the output."""
    described = machine(find_target(target_name))
    found = []
    for first in range(0, len(tests), TOGETHER):
        some = tests[first : first + TOGETHER]
        objects = _compiled([text for test in some for text in test.texts], described)
        library = folder / f"library{first}.a"
        library.write_bytes(write_library({f"part{n}.o": content for n, content in enumerate(objects)}))
        results = _in_wasm(some, library) if is_wasm(described) else _emulated(some, library, target_name)
        named = zip(some, results, strict=True)
        found += [f"{test.name}: output {result}" for test, result in named if result]
    return found


def _compiled(texts: Sequence[str], described: VectorTarget) -> list[bytes]:
    """Object files of modules; another test of the session may have compiled the same text."""
    cache = ObjectCache(shared("objects"))
    keys = [kernel_digest("\0".join((text, *described.llvm_settings)), described) for text in texts]
    found = {key: cache.get(key) for key in keys}
    missing = {key: text for key, text in zip(keys, texts, strict=True) if found[key] is None}
    if missing:
        for key, code in zip(missing, compile_apart(list(missing.values()), described), strict=True):
            cache.put(key, code)
            found[key] = code
    return [code for key in keys if (code := found[key]) is not None]


def _emulated(tests: Sequence[SelfTest], library: Path, target_name: str) -> Sequence[int]:
    emulator, program = EMULATORS[target_name], library.parent / "program"
    build_program(_runner(tests), library, emulator, program)
    return struct.unpack(f"<{len(tests)}i", run(program, emulator, struct.pack("<II", 0, 0)))


def _in_wasm(tests: Sequence[SelfTest], library: Path) -> Sequence[int]:
    exports = [f"{test.prefix}_{part}" for test in tests for part in ("selftest", "weights")]
    result = library.with_suffix(".wasm")
    link_module(library, exports, result)
    module = WasmModule(result)
    arena = module.take(max(test.arena for test in tests))
    weights = [module.constant(f"{test.prefix}_weights") for test in tests]
    return [
        int(module.call(f"{test.prefix}_selftest", arena, place))
        for test, place in zip(tests, weights, strict=True)
    ]


def _runner(tests: Sequence[SelfTest]) -> str:
    lines = ['#include "runner.h"']
    for test in tests:
        lines.append(f"int32_t {test.prefix}_selftest(void *, const void *);")
        lines.append(f"extern const unsigned char {test.prefix}_weights[];")
    lines.append(f"static _Alignas(64) unsigned char arena[{max(test.arena for test in tests)}];")
    lines += ["int run_samples(void)", "{", "    int32_t result;"]
    for test in tests:
        lines.append(f"    result = {test.prefix}_selftest(arena, {test.prefix}_weights);")
        lines.append("    system_write(&result, sizeof result);")
    return "\n".join([*lines, "    return 0;", "}", ""])
