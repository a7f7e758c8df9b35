"""The problem suite on processors that the host emulates: every bit is the interpreter's."""

from __future__ import annotations

from pathlib import Path

import pytest

from qglow.emulation.machines import EMULATORS
from qglow.instructions.passes import optimize
from qglow.lowering import lower
from tests.emulated import make_self_test, needs, wrong_outputs
from tests.runtimes import run_compiled
from tests.test_runtimes import FAMILIES, MAKERS, WITH_FMA, draw

ALWAYS = ("aarch64-dotprod", "cortex-m4", "wasm32-simd128")
"""Targets that every run covers; the others are a sweep."""
OFTEN = {
    "cortex-m55": ("conv", "linear"),
    "aarch64-i8mm": ("conv", "linear"),
    "cortex-m3": ("conv", "elementwise", "fixedpoint", "selection"),
    "aarch64": ("linear",),
    "armv7": ("linear",),
    "riscv64": ("blocks", "conv", "elementwise", "integers", "linear"),
    "riscv64-v": ("conv", "linear"),
}
"""Families of more targets that every run covers: kernels of their own, or other arithmetic."""
HOSTED = "opaque"
"""The family of nodes that onnxruntime runs, which these targets refuse."""
SOUND_FROM = {("riscv64-v", "integers"): 10}
"""First QEMU known to run a family on a target: 7.2 fails an assertion of its own on vfncvt.rtz.xu.f.w."""
SWEEP = [pytest.mark.sweep, pytest.mark.slow]
CASES = [
    pytest.param(
        name,
        family,
        marks=[] if name in ALWAYS or family in OFTEN.get(name, ()) else SWEEP,
        id=f"{name}-{family}",
    )
    for name in (*EMULATORS, "wasm32", "wasm32-simd128")
    for family in FAMILIES
    if family != HOSTED
]
FLOAT_CASES = [
    pytest.param(name, family, marks=[] if name == "wasm32-simd128" else SWEEP, id=f"{name}-{family}")
    for name in (*EMULATORS, "wasm32", "wasm32-simd128")
    for family in ("attention", "conv", "linear", "recurrence")
]


@pytest.mark.parametrize(("target", "family"), CASES)
def test_self_tests_of_a_family_pass(target: str, family: str, tmp_path: Path) -> None:
    needs(target, SOUND_FROM.get((target, family), 0))
    makers = [(name, make) for name, make in MAKERS if name.startswith(f"{family}-")]
    tests = [make_self_test(name, draw(name, make), target) for name, make in makers]
    assert tests and wrong_outputs(tests, target, tmp_path) == []


@pytest.mark.skipif(not WITH_FMA, reason="the host has no fused multiply-add")
@pytest.mark.parametrize(("target", "family"), FLOAT_CASES)
def test_float_chains_have_the_bits_of_fused_multiply_adds(target: str, family: str, tmp_path: Path) -> None:
    """Also where no instruction fuses: outputs of the host's code are expected without tolerance."""
    needs(target)
    tests = []
    for name, make in MAKERS:
        if name.startswith(f"{family}-") and not (problem := draw(name, make)).exact:
            program = lower(problem.graph)
            optimize(program)
            outputs = run_compiled(program, WITH_FMA[0], problem.inputs)
            tests.append(make_self_test(name, problem, target, exact=outputs))
    assert tests and wrong_outputs(tests, target, tmp_path) == []


def test_a_wrong_expectation_is_found(tmp_path: Path) -> None:
    """The emulator runs the code: a self-test whose code is another problem's fails."""
    target = "aarch64-dotprod"
    needs(target)
    names = dict(MAKERS)
    first, second = (make_self_test(name, draw(name, names[name]), target) for name in ("pool-0", "pool-1"))
    swapped = first.texts[2].replace(first.prefix, second.prefix)
    mixed = type(second)(second.name, second.prefix, (*second.texts[:2], swapped), 1 << 20)
    assert wrong_outputs([mixed], target, tmp_path)
