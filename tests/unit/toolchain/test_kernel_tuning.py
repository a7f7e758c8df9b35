"""The search over kernels: what is measured, written, resumed and chosen. Times are made up."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qglow.codegen.kernel_choices import CONFIRMED, MeasuredKernels, choices_path, saved_choices
from qglow.core.types import float_type
from qglow.display.terminal import to_text
from qglow.graph.builder import GraphBuilder
from qglow.graph.graph import Graph
from qglow.graph.ops.linear import Gemm
from qglow.instructions.program import Instruction, Program
from qglow.kernels.pooling.mean_epilogue import MeanInEpilogue
from qglow.kernels.selection.choice import alternatives
from qglow.kernels.selection.epilogue import InEpilogue
from qglow.kernels.selection.epilogue_choice import fused_groups
from qglow.kernels.selection.select import select_kernels
from qglow.report.kernels import CHOSEN, kernel_document
from qglow.report.stages import stage_text
from qglow.targets.capabilities import timed
from qglow.targets.protocol import TimedTarget
from qglow.targets.registry import find_target
from qglow.toolchain import CompileOptions, compile_graph, lower_graph, selected_program
from qglow.toolchain.artefacts import write_artefact
from qglow.toolchain.kernel_tuning import KernelSearch, KernelTuning
from qglow.toolchain.timing import Ticks, compare_instructions
from tests.runtimes import PLAIN, machine
from tests.unit.kernels.selection.test_epilogue import Case, build

MACHINE = machine(PLAIN)
TARGET = timed(find_target(PLAIN))
ROWS, DEPTH, COLUMNS = 12, 20, 30
USUAL = 100.0


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QGLOW_CACHE", str(tmp_path / "cache"))


def graph() -> Graph:
    """Two products of one shape, and one of another."""
    builder = GraphBuilder("products")
    rng = np.random.default_rng(0)
    x = builder.input("x", float_type(ROWS, DEPTH))
    weights = [rng.standard_normal((DEPTH, n)).astype(np.float32) for n in (COLUMNS, COLUMNS, 7)]
    results = [
        builder.node(Gemm(), x, builder.constant(f"w{n}", w), None, name=f"y{n}")
        for n, w in enumerate(weights)
    ]
    return builder.finish(*results)


class Clock:
    """Made-up times: a kernel takes USUAL, or what `times` say of it; calls are counted."""

    def __init__(self, times: Callable[[str], float], stop_after: int = 1000) -> None:
        self.times, self.stop_after = times, stop_after
        self.tried: list[dict[str, str]] = []

    def __call__(self, one: Program, other: Program, target: TimedTarget) -> tuple[Ticks, Ticks]:
        if len(self.tried) == self.stop_after:
            raise KeyboardInterrupt
        self.tried.append({i.name: i.kernel for i in other.code if i.kernel})
        usual = {i.name: USUAL for i in one.code}
        return usual, {**usual, **{i.name: self.times(i.kernel) for i in other.code if i.kernel}}


def search(clock: Clock) -> KernelSearch:
    return KernelSearch(lambda: lower_graph(graph()), TARGET, MeasuredKernels.load(MACHINE), clock)


def run(clock: Clock) -> tuple[KernelTuning, list[int]]:
    done: list[int] = []
    return search(clock).run(done.append), done


def favourite(kernel: str) -> float:
    return 50.0 if kernel == third_kernel() else 120.0


@functools.cache
def third_kernel() -> str:
    """An alternative for the products of one shape, and for no other."""
    first, _, last = (i for i in lowered_with_kernels() if i.kernel)
    names = [kernel.describe() for kernel in alternatives(first, MACHINE)]
    others = {kernel.describe() for kernel in alternatives(last, MACHINE)}
    return [name for name in names[1:] if name not in others][1]


def lowered_with_kernels() -> list[Instruction]:
    program = lower_graph(graph())
    select_kernels(program, MACHINE)
    return program.code


def test_the_fastest_is_found_once_and_is_what_is_compiled_from_then_on() -> None:
    usual = [i.kernel for i in selected_program(graph(), PLAIN).code if i.kernel]
    waiting = search(Clock(favourite)).pending
    clock = Clock(favourite)
    found, done = run(clock)
    assert (found.shapes, found.kernels, found.changed) == (2, waiting, 1)
    assert sum(done) == waiting and found.gain > 1.0
    chosen = [i.kernel for i in selected_program(graph(), PLAIN).code if i.kernel]
    assert chosen[0] == chosen[1] != usual[0] and favourite(chosen[0]) == 50.0
    assert chosen[2] == usual[2]
    again = Clock(favourite)
    assert search(again).pending == 0
    assert run(again)[0] == found and len(again.tried) == 1, "only the gain is measured anew"


def test_an_interrupted_search_goes_on_where_it_was() -> None:
    whole = run(Clock(favourite))[0]
    choices = saved_choices(MACHINE)
    choices_path(MACHINE).unlink()
    stopped = Clock(favourite, stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        run(stopped)
    assert sum(len(kernels) for kernels in MeasuredKernels.load(MACHINE).ratios.values()) == 4
    rest = Clock(favourite)
    assert run(rest)[0] == whole and saved_choices(MACHINE) == choices
    # Kernels of one name may fit both shapes: what is not tried again is a kernel for an instruction.
    again = {pair for tried in rest.tried[:-2] for pair in tried.items()}
    assert not again & {pair for tried in stopped.tried for pair in tried.items()}


def test_what_was_faster_by_luck_alone_is_not_chosen() -> None:
    seen: set[str] = set()

    def lucky(kernel: str) -> float:
        first = kernel not in seen
        seen.add(kernel)
        return 60.0 if first else 150.0

    found, _ = run(Clock(lucky))
    assert found.changed == 0 and found.gain == 1.0 and not saved_choices(MACHINE)


def test_a_gain_within_the_noise_changes_nothing() -> None:
    assert run(Clock(lambda kernel: 98.5))[0].changed == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"format": 1}',
        '{"format": 1, "measured": {"k": {"a": [-1.0, 0.5]}}}',
        '{"format": 99, "measured": {"k": {"a": [0.5, 0.5]}}}',
        '{"format": 1, "measured": {"k": [1]}}',
    ],
)
def test_a_file_that_is_no_such_file_counts_for_nothing(content: str) -> None:
    path = choices_path(MACHINE)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert saved_choices(MACHINE) == {}


def test_choices_are_in_results_and_in_the_list_of_kernels(tmp_path: Path) -> None:
    x = {"x": np.random.default_rng(1).standard_normal((ROWS, DEPTH)).astype(np.float32)}
    options = CompileOptions(isa=PLAIN)
    before = compile_graph(graph(), options)(x)
    write_artefact(tmp_path / "before.qglow", lower_graph(graph()), options)
    assert CHOSEN not in stage_text(graph(), "kernels", PLAIN)
    run(Clock(favourite))
    assert stage_text(graph(), "kernels", PLAIN).count(CHOSEN) == 2
    after = compile_graph(graph(), options)(x)
    assert all(np.array_equal(after[name], before[name]) for name in before)
    write_artefact(tmp_path / "after.qglow", lower_graph(graph()), options)
    assert (tmp_path / "before.qglow").read_bytes() != (tmp_path / "after.qglow").read_bytes()
    without = CompileOptions(isa=PLAIN, cache=False)
    write_artefact(tmp_path / "without.qglow", lower_graph(graph()), without)
    assert (tmp_path / "before.qglow").read_bytes() == (tmp_path / "without.qglow").read_bytes()


def test_the_file_says_what_was_measured() -> None:
    run(Clock(favourite))
    content = json.loads(choices_path(MACHINE).read_text())
    [wide] = [key for key in content["measured"] if f"{COLUMNS}]" in key]
    assert wide.startswith("fullyconnected")
    assert [0.5, 0.5] in content["measured"][wide].values()


def residual() -> Program:
    """A convolution, and a sum that can be its epilogue."""
    return build(Case(follow=("add",)))


def tune_residual(times: Callable[[str], float], stop_after: int = 1000) -> Clock:
    clock = Clock(times, stop_after)
    KernelSearch(residual, TARGET, MeasuredKernels.load(MACHINE), clock).run(lambda done: None)
    return clock


def epilogues() -> list[str]:
    """What is fused with the choices that were saved."""
    program = residual()
    select_kernels(program, MACHINE, saved_choices(MACHINE))
    return [member.name for group in fused_groups(program) for member in group[1:]]


def test_epilogues_are_measured_behind_kernels_and_chosen_where_they_gain() -> None:
    clock = tune_residual(lambda kernel: 0.0 if kernel == InEpilogue.name else USUAL)
    has_one = [InEpilogue.name in tried.values() for tried in clock.tried]
    assert has_one == sorted(has_one) and has_one.count(True) == CONFIRMED + 1, "the last is the gain"
    assert epilogues() == ["add0"]
    program = residual()
    select_kernels(program, MACHINE, saved_choices(MACHINE))
    rows = to_text(kernel_document(program, MACHINE, choices=saved_choices(MACHINE)), 200)
    assert f"epilogue of %conv{CHOSEN}" in rows


@pytest.mark.parametrize(("pool", "joined"), [(0.0, ["add0", "pool"]), (3.0 * USUAL, ["add0"])])
def test_a_pool_is_measured_in_the_epilogue_and_behind_it(pool: float, joined: list[str]) -> None:
    times = {MeanInEpilogue.name: pool, InEpilogue.name: 0.5 * USUAL}

    def make() -> Program:
        return build(Case(follow=("add",), pool=True))

    clock = Clock(lambda kernel: times.get(kernel, USUAL))
    KernelSearch(make, TARGET, MeasuredKernels.load(MACHINE), clock).run(lambda done: None)
    select_kernels(program := make(), MACHINE, saved_choices(MACHINE))
    assert [member.name for group in fused_groups(program) for member in group[1:]] == joined
    rows = to_text(kernel_document(program, MACHINE, choices=saved_choices(MACHINE)), 200)
    assert rows.count(f"epilogue of %conv{CHOSEN}") == len(joined)


def test_epilogues_that_cost_more_stay_apart_and_a_search_for_them_goes_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        tune_residual(lambda kernel: USUAL, stop_after=1)
    tune_residual(lambda kernel: 1.1 * USUAL if kernel == InEpilogue.name else USUAL)
    assert epilogues() == []
    assert tune_residual(lambda kernel: 0.0).tried == [], "all is known"


def test_programs_take_turns() -> None:
    one, other = (selected_program(graph(), PLAIN) for _ in range(2))
    for ticks, program in zip(compare_instructions(one, other, TARGET), (one, other), strict=True):
        assert set(ticks) == {i.name for i in program.code} and sum(ticks.values()) > 0.0
