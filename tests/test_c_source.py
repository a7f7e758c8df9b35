"""The problem suite as C99 sources, compiled by the system's compiler: every bit is the interpreter's."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from qglow.bundles.code import Vectors
from qglow.bundles.interface import Interface
from qglow.bundles.texts import source_texts
from qglow.bundles.write import as_callers_see
from qglow.core.types import Array
from qglow.csource.parts import selftest_text, weights_text
from qglow.csource.program import SourceProgram
from qglow.csource.writer import EMITTERS
from qglow.instructions.interpreter import ArenaInterpreter
from qglow.instructions.operation import OPERATIONS
from qglow.instructions.passes import optimize
from qglow.instructions.plan import plan_memory
from qglow.lowering import lower
from qglow.runtime.signature import Signature
from qglow.targets.registry import find_target
from tests.compilers import c_compiler
from tests.runtimes import run_compiled
from tests.suite.problem import Problem
from tests.test_runtimes import FAMILIES, MAKERS, WITH_FMA, draw

FLOAT_TOLERANCE = 1e-5
"""Largest error of float chains relative to the largest result: the interpreter rounds them otherwise."""
FLAGS = ("-std=c99", "-O1", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pedantic")
WITHOUT = {
    "allocactivation",
    "deallocactivation",
    "tensorview",
    "attention",
    "quantizerows",
    "standardize",
    "branch",
    "loop",
    "hostcall",
    "profile",
}
"""Operations without an emitter. The first three do nothing, what others join is single for this target,
branches and loops are written by the program, and what needs Python has no C."""
HOSTED = "opaque"
"""The family of nodes that onnxruntime runs, which no bundle has."""


def write_problem(
    name: str, problem: Problem, folder: Path, exact: Mapping[str, Array] | None = None
) -> tuple[str, int]:
    """Write a problem as one C file; its prefix and the bytes of the self-test.

    exact: outputs to expect in every bit, in place of the interpreter's.
    """
    program = lower(problem.graph, find_target("c").backend)
    optimize(program)
    plan_memory(program)
    source = SourceProgram(program)
    weights, prefix = source.weights, name.replace("-", "_")
    interface = Interface.of(prefix, Signature.of(program), program.arena_size or 0, len(weights), 0)
    with np.errstate(all="ignore"):
        outputs = dict(exact) if exact is not None else ArenaInterpreter(program).run(problem.inputs)
    tolerances = {}
    for output, array in outputs.items():
        if array.dtype == np.float32 and not problem.exact and exact is None:
            most = np.abs(array[np.isfinite(array)]).max(initial=0)
            tolerances[output] = float(np.float32(FLOAT_TOLERANCE * max(1, most)))
    vectors = as_callers_see(interface, Vectors(problem.inputs, outputs, tolerances))
    (folder / f"{prefix}.h").write_text(source_texts(interface, name, "c", 0)[f"{prefix}.h"])
    parts = source.text(interface), weights_text(interface, weights), selftest_text(interface, vectors)
    (folder / f"{prefix}.c").write_text("\n".join(parts))
    return prefix, interface.selftest_arena


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != HOSTED])
def test_problems_of_a_family_give_the_same_bits(family: str, tmp_path: Path) -> None:
    makers = [(name, make) for name, make in MAKERS if name.startswith(f"{family}-")]
    drawn = [(name, draw(name, make)) for name, make in makers]
    assert failing([write_problem(name, problem, tmp_path) for name, problem in drawn], tmp_path) == []


@pytest.mark.skipif(not WITH_FMA, reason="the host has no fused multiply-add")
@pytest.mark.parametrize("family", ["attention", "conv", "linear", "recurrence"])
def test_float_chains_have_the_bits_of_fused_multiply_adds(family: str, tmp_path: Path) -> None:
    """Outputs of the host's code are expected without tolerance."""
    found = []
    for name, make in MAKERS:
        if name.startswith(f"{family}-") and not (problem := draw(name, make)).exact:
            program = lower(problem.graph)
            optimize(program)
            outputs = run_compiled(program, WITH_FMA[0], problem.inputs)
            found.append(write_problem(name, problem, tmp_path, outputs))
    assert failing(found, tmp_path) == []


def failing(found: list[tuple[str, int]], tmp_path: Path) -> list[str]:
    """Compile self-tests and run them; the prefixes of those that fail."""
    cc = c_compiler()
    assert found
    lines = [f'#include "{prefix}.h"' for prefix, _ in found]
    lines += ["#include <stdio.h>", f"static unsigned char arena[{max(size for _, size in found)}];"]
    lines += ["int main(void)", "{"]
    lines += [f'    printf("%d ", (int){p}_selftest(arena, {p}_weights));' for p, _ in found]
    (tmp_path / "all.c").write_text("\n".join([*lines, "    return 0;", "}", ""]))
    files = ["all.c", *(f"{prefix}.c" for prefix, _ in found)]
    built = subprocess.run([cc, *FLAGS, *files, "-o", "all"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:2000]
    done = subprocess.run(["./all"], cwd=tmp_path, check=True, capture_output=True, text=True)
    results = dict(zip((prefix for prefix, _ in found), map(int, done.stdout.split()), strict=True))
    return [prefix for prefix, output in results.items() if output]


def test_operations_without_c_are_these() -> None:
    assert set(OPERATIONS) - set(EMITTERS) == WITHOUT
